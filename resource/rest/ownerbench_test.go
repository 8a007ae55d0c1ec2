package rest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	kjson "sigs.k8s.io/json"

	"portico/resource"
)

// BenchmarkOwnersOfUpdate records who owns what after an update of one field, by
// the walk and by upstream's tracker: of a custom resource of 3.5 KB, a config
// map of the same size, and a pod.
func BenchmarkOwnersOfUpdate(b *testing.B) {
	converter := ownedConverter(b)
	widgets := widgetKind("v1")
	widgets.Ownership = func() (managedfields.TypeConverter, error) { return converter, nil }
	maps := configMaps()
	maps.Ownership = builtinOwners
	pods := &Kind{
		Info:      resource.Info{Versions: []string{"v1"}, Resource: "pods", Kind: "Pod", Namespaced: true},
		Codec:     Typed(coreScheme(), corev1.SchemeGroupVersion.WithKind("Pod")),
		Ownership: builtinOwners,
	}
	widget := wideWidget(100, 20)
	cm, pod := bare("a"), &corev1.Pod{}
	for i := range 30 {
		cm.Data[fmt.Sprintf("key-%d", i)] = strings.Repeat("v", 100)
	}
	for _, part := range []int{0, 2, 4, 8, 11} {
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(podParts[part]), pod); err != nil {
			b.Fatal(err)
		}
	}
	cm.SetGroupVersionKind(maps.GVK("v1"))
	pod.SetGroupVersionKind(pods.GVK("v1"))
	for name, test := range map[string]struct {
		kind *Kind
		live Object
	}{"widget": {widgets, widget}, "configmap": {maps, cm}, "pod": {pods, pod}} {
		for _, tracker := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/tracker=%t", name, tracker), func(b *testing.B) { benchOwners(b, test.kind, test.live, tracker) })
		}
	}
}

func benchOwners(b *testing.B, k *Kind, live Object, tracker bool) {
	act := &resource.Action{IsResource: true, Group: k.Group, Version: "v1", Resource: k.Resource, Namespace: "default"}
	w := newWrite(New(Config{}), act, &Resource{Kind: k}, nil, writeOptions{owner: "m", object: &metav1.UpdateOptions{}})
	live = live.DeepCopyObject().(Object)
	live.SetManagedFields(nil)
	if err := w.record(live, nil); err != nil {
		b.Fatal(err)
	}
	live.SetUID("u")
	next := live.DeepCopyObject().(Object)
	next.SetLabels(map[string]string{"changed": "yes"})
	record := next.GetManagedFields()
	b.ReportAllocs()
	for b.Loop() {
		if u, ok := next.(*unstructured.Unstructured); ok {
			u.Object["metadata"].(map[string]any)["managedFields"] = rawRecord(live.(*unstructured.Unstructured))
		} else {
			next.SetManagedFields(record)
		}
		if !tracker {
			if done, err := w.recordChange(next, live); !done || err != nil {
				b.Fatal(done, err)
			}
			continue
		}
		m, _, err := w.fieldManager(live)
		if err == nil {
			_, err = m.Update(live, next, "m")
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
