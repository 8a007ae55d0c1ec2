package custom

import (
	"runtime"
	"testing"
	"weak"

	"k8s.io/apimachinery/pkg/fields"

	"portico/resource"
	"portico/resource/rest"
)

// What an object caches of a row and its codec does not keep these in memory.
func TestObjectsDoNotKeepDefinitions(t *testing.T) {
	t.Parallel()
	o, err := resource.Parse([]byte(`{"apiVersion":"example.com/v1","kind":"X","metadata":{"name":"a","generation":1},"spec":{"tier":"gold","pruned":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	look := func() (weak.Pointer[rest.Kind], weak.Pointer[codec]) {
		outline, err := NewOutline(&resource.Object{Data: []byte(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"xs.example.com"},
			"spec":{"group":"example.com","names":{"plural":"xs","kind":"X"},"versions":[{"name":"v1","storage":true,"selectableFields":[{"jsonPath":".spec.tier"}],
			"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"tier":{"type":"string"}}}}}}}]},
			"status":{"acceptedNames":{"plural":"xs","kind":"X"}}}`)})
		if err != nil {
			t.Fatal(err)
		}
		kinds, err := NewKinds(WebhookClients{})
		if err != nil {
			t.Fatal(err)
		}
		k := kinds.Kind(outline, "v1")
		c := k.Codec.(*codec)
		if c.Canonical(o) {
			t.Error("an object with an unknown field is canonical")
		}
		sel := resource.Selector{Fields: fields.ParseSelectorOrDie("spec.tier=gold"), Names: k.FieldLabels, By: k.FieldsBy}
		sel.Extract = func(o *resource.Object) map[string]string {
			obj, err := c.DecodeStored(o)
			if err != nil {
				t.Fatal(err)
			}
			return k.Fields(obj)
		}
		if !sel.Matches(o) {
			t.Error("the field selector does not match")
		}
		return weak.Make(k), weak.Make(c)
	}
	kind, looked := look()
	for range 3 { // one collection does not always suffice
		runtime.GC()
	}
	if kind.Value() != nil || looked.Value() != nil {
		t.Error("an object keeps its last row or codec")
	}
	runtime.KeepAlive(o)
}
