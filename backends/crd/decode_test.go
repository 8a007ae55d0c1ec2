package crd

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A body that is decoded quickly is what the general decoder makes of it.
func FuzzQuickDecodeBody(f *testing.F) {
	want := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	f.Add([]byte(gadget("a")))
	for _, head := range []string{
		`"apiVersion":"example.com/v1","kind":"Gadget"`, `"apiVersion":"example.com/v1","kind":"Gadget","Kind":"X"`,
		`"kind":"Gadget","apiVersion":"example.com/v1","apiversion":null`, `"apiVersion":"v1","kind":"Gadget"`, `"kind":"Gadget"`,
		`"apiVersion":"example.com/v1","kind":"Gadget","items":[]`, `"apiVersion":"example.com/v1","kind":"Gadget","\u212aind":1`,
	} {
		f.Add([]byte(`{` + head + `,"metadata":{"name":"a"}}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := quickDecodeBody(data, want)
		if !ok {
			return
		}
		b := newBodies()
		obj, gvk, err := b.strictJSON.Decode(data, &want, nil)
		if err != nil || *gvk != want {
			t.Fatalf("%q is decoded quickly, but %v: %v", data, gvk, err)
		}
		slow := obj.(*unstructured.Unstructured)
		slow.SetGroupVersionKind(*gvk)
		if !reflect.DeepEqual(got, slow) {
			t.Fatalf("%q\n got %v\nwant %v", data, got, slow)
		}
	})
}
