package handlers

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
	"portico/resource/rest"
)

// withMetadata returns a config map with that many labels, finalizers and owners.
func withMetadata(labels, finalizers, owners int) *corev1.ConfigMap {
	cm := bare("a")
	cm.Labels = map[string]string{}
	for i := range labels {
		cm.Labels[fmt.Sprint("l", i)] = ""
	}
	for i := range finalizers {
		cm.Finalizers = append(cm.Finalizers, fmt.Sprint("example.com/f", i))
	}
	for i := range owners {
		cm.OwnerReferences = append(cm.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "p", UID: types.UID(fmt.Sprint(i))})
	}
	return cm
}

// No kind of write can grow metadata beyond its bounds.
func TestMetadataIsBounded(t *testing.T) {
	t.Parallel()
	const tooMany = `ConfigMap "a" is invalid: metadata.%s: Too many: %d: must have at most %d items`
	for _, tracked := range []bool{false, true} {
		b := newOwnBench(t)
		if !tracked {
			b.configMaps.Ownership = nil
		}
		for name, test := range map[string]struct {
			cm   *corev1.ConfigMap
			most int
		}{
			"labels":          {withMetadata(maxLabels+1, 0, 0), maxLabels},
			"finalizers":      {withMetadata(0, maxFinalizers+1, 0), maxFinalizers},
			"ownerReferences": {withMetadata(0, 0, maxOwnerReferences+1), maxOwnerReferences},
		} {
			b.send("POST", inDefault+"configmaps", test.cm).want(422, fmt.Sprintf(tooMany, name, test.most+1, test.most))
		}
		b.create(withMetadata(maxLabels, 0, 0))
		b.send("PUT", configMapA, withMetadata(maxLabels+1, 0, 0)).want(422, fmt.Sprintf(tooMany, "labels", maxLabels+1, maxLabels))
		b.send("PATCH", configMapA, `{"metadata":{"labels":{"one":"more"}}}`, "Content-Type", mergePatch).want(422, fmt.Sprintf(tooMany, "labels", maxLabels+1, maxLabels))
		if tracked {
			b.apply(configMapA, "m", cmIntent(`,"metadata":{"name":"a","labels":{"one":"more"}}`)).want(422, fmt.Sprintf(tooMany, "labels", maxLabels+1, maxLabels))
		}
		entries := strings.Repeat(`{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}},`, maxManagers)
		b.send("PATCH", configMapA, `{"metadata":{"managedFields":[`+entries+entries[:len(entries)-1]+`]}}`, "Content-Type", mergePatch).
			want(422, fmt.Sprintf(tooMany, "managedFields", 2*maxManagers, maxManagers))
		b.send("PATCH", configMapA, `{"metadata":{"labels":{"one":"more","l0":null}}}`, "Content-Type", mergePatch).want(200, "")
	}
}

// Objects in storage that exceed a bound can be read, changed otherwise, shrunk and deleted.
func TestMetadataBeyondItsBounds(t *testing.T) {
	t.Parallel()
	b := newOwnBench(t)
	b.create(bare("a"))
	large := withMetadata(2*maxLabels, 2*maxFinalizers, 0)
	if _, err := rest.Modify(t.Context(), b.configMaps, resource.Key{Namespace: "default", Name: "a"}, func(cm *corev1.ConfigMap) error {
		cm.Labels, cm.Finalizers = large.Labels, large.Finalizers
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	got := b.send("GET", configMapA, nil).want(200, "").configMap()
	got.Data = map[string]string{"k": "other"}
	got = b.send("PUT", configMapA, got).want(200, "").configMap()
	if len(got.Labels) != 2*maxLabels || got.Data["k"] != "other" {
		t.Errorf("%d labels, data %v", len(got.Labels), got.Data)
	}
	b.send("PATCH", configMapA, `{"metadata":{"labels":{"one":"more"}}}`, "Content-Type", mergePatch).
		want(422, `ConfigMap "a" is invalid: metadata.labels: Too many: 2001: must have at most 2000 items`)
	smaller := b.send("PATCH", configMapA, `{"metadata":{"labels":{"l0":null},"finalizers":null}}`, "Content-Type", mergePatch).want(200, "").configMap()
	if len(smaller.Labels) != 2*maxLabels-1 || len(smaller.Finalizers) > 0 {
		t.Errorf("%d labels, %d finalizers", len(smaller.Labels), len(smaller.Finalizers))
	}
	b.send("DELETE", configMapA, nil).want(200, "")
	b.send("GET", configMapA, nil).want(404, "")
}
