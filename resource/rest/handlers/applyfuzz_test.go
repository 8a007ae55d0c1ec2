package handlers

import (
	"context"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"portico/resource"
	"portico/resource/rest"
)

// No apply patch panics or changes the object that it is merged with, which readers share, and
// a patch that is accepted once is accepted again.
func FuzzApply(f *testing.F) {
	const service, widget = `{"apiVersion":"v1","kind":"Service",`, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},`
	for _, seed := range []string{
		"", "null", "[]", "{}", "apiVersion: v1\nkind: Service\n", "a: &a [x, x]\nb: [*a, *a]\n",
		service + `"spec":{"ports":[{"port":1}]}}`, service + `"spec":{"ports":[{"port":1},{"port":1}]}}`, service + `"spec":null}`,
		service + `"spec":{"ports":[{}]}}`, service + `"spec":{"ports":[{"port":1.5}],"selector":{"a":null}}}`,
		service + `"metadata":{"labels":{"a":"b"},"ownerReferences":[{"uid":"x"}],"finalizers":["a","a"]}}`,
		widget + `"spec":{"a":{"b":2},"d":1}}`, widget + `"spec":{"list":[]}}`, widget + `"spec":null}`,
	} {
		f.Add([]byte(seed))
	}
	b := newTrackedBench(f)
	typed := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", UID: "u"}}
	typed.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	untyped := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w", "namespace": "default", "uid": "u"},
		"spec": map[string]any{"a": map[string]any{"b": int64(1)}, "list": []any{map[string]any{"c": int64(1)}}},
	}}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, of := range []struct {
			res    *rest.Resource
			live   rest.Object
			before any
		}{{b.services, typed, typed.DeepCopy()}, {b.widgets["v1"], untyped, untyped.DeepCopy()}} {
			apply := func(old rest.Object) (rest.Object, error) {
				act := &resource.Action{IsResource: true, Group: of.res.Group, Version: "v1", Resource: of.res.Resource, Namespace: "default", Name: of.live.GetName(), InPath: true}
				w := newWrite(b.api, act, of.res, nil, writeOptions{managerName: "m", object: &metav1.PatchOptions{Force: new(true)}})
				p, err := newApplying(w, data, true)
				if err != nil {
					return nil, err
				}
				return p.next(context.Background(), nil, old)
			}
			first, err := apply(of.live)
			if !reflect.DeepEqual(of.live, of.before) {
				t.Fatalf("%+v became %+v", of.before, of.live)
			}
			if err != nil {
				continue
			}
			if _, err := apply(first); err != nil {
				t.Fatalf("accepted once, then rejected: %v", err)
			}
		}
	})
}
