package handlers

import (
	"context"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/rest"
)

// No intent may panic or change the state that it is merged with, and one that
// is taken is taken again. That nothing changes then is the library's affair: it
// does for objects that validation would not let through.
func FuzzApply(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", "{}", "apiVersion: v1\nkind: Service\n", `{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":1}]}}`,
		`{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":1},{"port":1}]}}`, `{"apiVersion":"v1","kind":"Service","spec":null}`,
		`{"apiVersion":"v1","kind":"Service","spec":{"ports":[{}]}}`, `{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":1.5}],"selector":{"a":null}}}`, "a: &a [x, x]\nb: [*a, *a]\n",
		`{"apiVersion":"v1","kind":"Service","metadata":{"labels":{"a":"b"},"ownerReferences":[{"uid":"x"}],"finalizers":["a","a"]}}`,
	} {
		f.Add([]byte(seed))
	}
	b := newWriteBench(f)
	b.services.Ownership = builtinOwners
	act := &resource.Action{IsResource: true, Version: "v1", Resource: "services", Namespace: "default", Name: "s", InPath: true}
	f.Fuzz(func(t *testing.T, data []byte) {
		apply := func(old rest.Object) (rest.Object, error) {
			w := newWrite(b.api, act, b.services, nil, writeOptions{managerName: "m", object: &metav1.PatchOptions{Force: new(true)}})
			p, err := newApplying(w, data)
			if err != nil {
				return nil, err
			}
			return p.next(context.Background(), nil, old)
		}
		live := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", UID: "u"}}
		live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
		before := live.DeepCopy()
		first, err := apply(live)
		if !reflect.DeepEqual(live, before) {
			t.Fatalf("%+v became %+v", before, live)
		}
		if err != nil {
			return
		}
		if _, err := apply(first); err != nil {
			t.Fatalf("taken once, then refused: %v", err)
		}
	})
}
