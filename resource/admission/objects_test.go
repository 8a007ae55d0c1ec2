package admission

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

func objectsOf(kind *rest.Kind, obj runtime.Object) (*objects, *rest.Attributes) {
	a := create(kind)
	a.Object = obj
	return newObjects(a), a
}

// Only the kind of the write, its versions and the kinds of its subresources are recognized.
func TestObjectsKnowTheirKindOnly(t *testing.T) {
	kind := widgets()
	scale := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	kind.Subresources = append(kind.Subresources, rest.Subresource{Name: "scale", GVK: scale})
	o, _ := objectsOf(kind, nil)
	for gvk, want := range map[schema.GroupVersionKind]bool{
		kind.GVK("v1"): true, kind.GVK("v2"): true, kind.GVK("v3"): false, scale: true,
		{Version: "v1", Kind: "Secret"}: false, {Group: widgetGroup, Version: "v1", Kind: "Gadget"}: false,
	} {
		if obj, err := o.New(gvk); (err == nil) != want || want && obj.GetObjectKind().GroupVersionKind() != gvk {
			t.Errorf("%s: %v, %v", gvk, obj, err)
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		if _, _, err := o.ObjectKinds(u); (err == nil) != want {
			t.Errorf("%s: %v", gvk, err)
		}
	}
	if got := o.EquivalentResourcesFor(kind.GVR("v1"), ""); len(got) != 2 || got[1] != kind.GVR("v2") {
		t.Errorf("%v", got)
	}
	if got := o.KindFor(kind.GVR("v2"), "scale"); got != scale {
		t.Errorf("%v", got)
	}
	if got := o.KindFor(kind.GVR("v2"), ""); got != kind.GVK("v2") {
		t.Errorf("%v", got)
	}
	if got := o.KindFor(kind.GVR("v3"), ""); !got.Empty() {
		t.Errorf("%v", got)
	}
}

// Bodies of subresources of another kind are passed unchanged.
func TestForeignBodies(t *testing.T) {
	kind := widgets()
	scale := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	kind.Subresources = append(kind.Subresources, rest.Subresource{Name: "scale", GVK: scale})
	in := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(3)}}}
	in.SetGroupVersionKind(scale)
	o, a := objectsOf(kind, in)
	a.Action = &resource.Action{Version: "v1", Subresource: "scale"}
	if got := NewAttributes(a); got.GetKind() != scale || got.GetSubresource() != "scale" || got.GetResource() != kind.GVR("v1") {
		t.Errorf("%v %v", got.GetKind(), got.GetResource())
	}
	out, err := o.New(scale)
	if err != nil {
		t.Fatal(err)
	}
	o.Default(in)
	if err := o.Convert(in, out, nil); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(out.(*unstructured.Unstructured).Object, "spec", "replicas"); n != 3 {
		t.Errorf("%v", out)
	}
	if err := o.Convert(in, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}, nil); err == nil {
		t.Error("a scale became a widget")
	}
}

// The body of a subresource of another kind gets the defaults of the subresource after a change.
func TestDefaultsOfForeignBodies(t *testing.T) {
	kind := widgets()
	scale := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	kind.Subresources = append(kind.Subresources, rest.Subresource{Name: "scale", GVK: scale, Strategy: &rest.Strategy{
		Default: func(obj rest.Object) { obj.SetLabels(map[string]string{"defaulted": "true"}) },
	}})
	in := &unstructured.Unstructured{Object: map[string]any{}}
	in.SetGroupVersionKind(scale)
	o, _ := objectsOf(kind, in)
	if o.Default(in); in.GetLabels()["defaulted"] != "true" {
		t.Errorf("%v", in)
	}
}
