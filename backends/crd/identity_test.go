package crd

import (
	"runtime"
	"testing"
	"weak"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// What objects remember of having been looked at does not keep in memory by
// which definition that was.
func TestObjectsForgetTheirDefinitions(t *testing.T) {
	s := running(t)
	s.install(t, definitionWith(`{"type":"object","properties":{"spec":{"type":"object","properties":{"tier":{"type":"string"}}}}}`))
	d := s.served.Load().byGR[apischema.GroupResource{Group: "example.com", Resource: "xs"}]
	version := d.outline.Spec.Versions[0]
	version.SelectableFields = []apiextensionsv1.SelectableField{{JSONPath: ".spec.tier"}}
	o, err := resource.Parse([]byte(`{"apiVersion":"example.com/v1","kind":"X","metadata":{"name":"a","generation":1},"spec":{"tier":"gold","pruned":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	look := func() (weak.Pointer[rest.Kind], weak.Pointer[codec]) {
		k := s.newKind(d.serving, &version)
		c := k.Codec.(*codec)
		if c.Canonical(o) {
			t.Error("what is to be pruned is shown as it is stored")
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
			t.Error("not chosen")
		}
		return weak.Make(k), weak.Make(c)
	}
	kind, looked := look()
	for range 3 { // what has been weakly seen may need a second look
		runtime.GC()
	}
	if kind.Value() != nil || looked.Value() != nil {
		t.Error("an object keeps what looked at it last")
	}
	runtime.KeepAlive(o)
}
