package admission

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"

	"portico/resource/rest"
)

const mediaJSON = "application/json"

// objects makes, names, converts and defaults the objects of one write for the engines.
// Kinds with Go types are passed as these, others as unstructured objects.
//
// hub is the version of package rest. Conversions to hub use the kind's Codec and defaults.
type objects struct {
	kind *rest.Kind
	hub  schema.GroupVersionKind
}

var _ admission.ObjectInterfaces = (*objects)(nil)

func newObjects(a *rest.Attributes) *objects {
	o := &objects{kind: a.Kind, hub: a.Kind.GVK(a.Kind.Storage())}
	if codec, ok := a.Kind.Codec.(rest.Versioned); ok && codec.Hub().Group != a.Kind.Group {
		o.hub = codec.Hub().WithKind(a.Kind.Kind) // the kind is stored as one of another group
	}
	for _, obj := range []runtime.Object{a.Object, a.Old} {
		if obj == nil {
			continue
		}
		if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.GroupKind() == a.Kind.GroupKind() {
			o.hub = gvk
			break
		}
	}
	return o
}

func (o *objects) GetObjectCreater() runtime.ObjectCreater                       { return o }
func (o *objects) GetObjectTyper() runtime.ObjectTyper                           { return o }
func (o *objects) GetObjectDefaulter() runtime.ObjectDefaulter                   { return o }
func (o *objects) GetObjectConvertor() runtime.ObjectConvertor                   { return o }
func (o *objects) GetEquivalentResourceMapper() runtime.EquivalentResourceMapper { return o }

// versions returns the group/versions of the resource, or of its subresource if that is not "".
func (o *objects) versions(subresource string) []schema.GroupVersion {
	out := make([]schema.GroupVersion, 0, len(o.kind.Versions))
	for _, version := range o.kind.Versions {
		out = append(out, schema.GroupVersion{Group: o.kind.Group, Version: version})
	}
	if o.kind.Equivalents != nil {
		out = append(out, o.kind.Equivalents(subresource)...)
	}
	return out
}

// Recognizes reports whether the write can have objects of this kind.
func (o *objects) Recognizes(gvk schema.GroupVersionKind) bool {
	if o.isOwn(gvk) {
		return gvk == o.hub || slices.Contains(o.versions(""), gvk.GroupVersion())
	}
	for i := range o.kind.Subresources {
		if o.kind.Subresources[i].GVK == gvk {
			return true
		}
	}
	return false
}

// isOwn reports whether gvk is a version of the kind, not another kind of a subresource.
func (o *objects) isOwn(gvk schema.GroupVersionKind) bool {
	return gvk.GroupKind() == o.kind.GroupKind() || gvk == o.hub ||
		gvk.Kind == o.kind.Kind && slices.Contains(o.versions(""), gvk.GroupVersion())
}

// New returns an empty object of this kind, with apiVersion and kind.
func (o *objects) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	if !o.Recognizes(gvk) {
		return nil, runtime.NewNotRegisteredErrForKind("admission", gvk)
	}
	obj := o.kind.Codec.StrategicMerge(gvk)
	if obj == nil {
		obj = &unstructured.Unstructured{}
	}
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	return obj, nil
}

// ObjectKinds returns the kind of an object; an object without apiVersion and kind has the
// hub version.
func (o *objects) ObjectKinds(obj runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	gvk := o.kindOf(obj)
	if !o.Recognizes(gvk) {
		return nil, false, runtime.NewNotRegisteredErrForKind("admission", gvk)
	}
	return []schema.GroupVersionKind{gvk}, false, nil
}

func (o *objects) kindOf(obj runtime.Object) schema.GroupVersionKind {
	if gvk := obj.GetObjectKind().GroupVersionKind(); !gvk.Empty() {
		return gvk
	}
	return o.hub
}

// EquivalentResourcesFor returns the resource in all its group/versions.
func (o *objects) EquivalentResourcesFor(r schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	if r.GroupResource() != o.kind.GroupResource() {
		return nil
	}
	var out []schema.GroupVersionResource
	for _, gv := range o.versions(subresource) {
		out = append(out, gv.WithResource(o.kind.Resource))
	}
	return out
}

// KindFor returns the kind of the bodies of a resource; empty for other resources.
func (o *objects) KindFor(r schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	if r.Resource != o.kind.Resource || !slices.Contains(o.versions(subresource), r.GroupVersion()) {
		return schema.GroupVersionKind{}
	}
	return bodyKind(o.kind, r.GroupVersion(), subresource)
}

// Default sets the kind's defaults. An invalid object is not changed: its conversion to the
// hub version returns the error.
func (o *objects) Default(obj runtime.Object) {
	gvk := o.kindOf(obj)
	if !o.isOwn(gvk) {
		o.defaultBody(obj, gvk)
		return
	}
	if codec, ok := o.kind.Codec.(rest.Defaulting); ok && gvk != o.hub {
		_ = codec.Default(obj) // without a conversion, which may call a webhook
		return
	}
	hub, err := o.convert(obj, o.hub)
	if err != nil {
		return
	}
	if gvk != o.hub {
		if hub, err = o.convert(hub, gvk); err != nil {
			return
		}
	}
	_ = assign(obj, hub) // both have the same type
}

// defaultBody sets the defaults of a subresource's body of another kind (TokenRequest).
func (o *objects) defaultBody(obj runtime.Object, gvk schema.GroupVersionKind) {
	for i := range o.kind.Subresources {
		sub := &o.kind.Subresources[i]
		if sub.GVK != gvk || sub.Strategy == nil || sub.Strategy.Default == nil {
			continue
		}
		if body, ok := obj.(rest.Object); ok {
			sub.Strategy.Default(body)
		}
	}
}

// Convert converts in into out, which is empty or the object of the write.
func (o *objects) Convert(in, out, _ any) error {
	from, ok := in.(runtime.Object)
	to, ok2 := out.(runtime.Object)
	if !ok || !ok2 {
		return fmt.Errorf("convert %T to %T: not objects", in, out)
	}
	converted, err := o.convert(from, o.kindOf(to))
	if err != nil {
		return err
	}
	return assign(to, converted)
}

// ConvertToVersion returns an unstructured object as the Go type of its version, if there is
// one, and other objects unchanged. It ignores the version argument: the mutating policy
// engine, its only caller, passes the version of the request, although the object may have
// the version that a policy matched.
func (o *objects) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	u, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	out, err := o.New(o.kindOf(in))
	if err != nil {
		return nil, err
	}
	if _, ok := out.(*unstructured.Unstructured); ok {
		return in, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
		return nil, fmt.Errorf("convert to %T: %w", out, err)
	}
	return out, nil
}

// ConvertFieldLabel is not called.
func (o *objects) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}

// convert returns a new object of kind to.
func (o *objects) convert(in runtime.Object, to schema.GroupVersionKind) (runtime.Object, error) {
	from := o.kindOf(in)
	if !o.isOwn(from) || !o.isOwn(to) {
		return o.convertForeign(in, from, to)
	}
	if to == o.hub {
		return o.toHub(in, from)
	}
	hub := in
	if from != o.hub {
		var err error
		if hub, err = o.toHub(in, from); err != nil {
			return nil, err
		}
	}
	data, err := o.kind.Codec.Encode(hub, to, mediaJSON)
	if err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", from.Kind, to.GroupVersion(), err)
	}
	out, err := o.New(to)
	if err != nil {
		return nil, err
	}
	if err := decodeInto(data, out); err != nil {
		return nil, fmt.Errorf("convert %s to %s: %w", from.Kind, to.GroupVersion(), err)
	}
	return out, nil
}

// toHub returns the object in the hub version, decoded like a request.
func (o *objects) toHub(in runtime.Object, from schema.GroupVersionKind) (runtime.Object, error) {
	var hub runtime.Object
	if _, ok := in.(*unstructured.Unstructured); !ok && from == o.hub {
		hub = in.DeepCopyObject()
	} else {
		data, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", from.Kind, err)
		}
		if hub, _, err = o.kind.Codec.Decode(data, mediaJSON, from, false); err != nil {
			// %v hides the status of err, which would blame the client's request.
			return nil, fmt.Errorf("convert %s to %s: %v", from.Kind, o.hub.GroupVersion(), err)
		}
	}
	if obj, ok := hub.(rest.Object); ok && o.kind.Strategy.Default != nil {
		o.kind.Strategy.Default(obj)
	}
	return hub, nil
}

// convertForeign is convert for subresources of another kind, which have one version.
func (o *objects) convertForeign(in runtime.Object, from, to schema.GroupVersionKind) (runtime.Object, error) {
	if from != to {
		return nil, fmt.Errorf("a %s cannot be converted to %s", from, to)
	}
	return in.DeepCopyObject(), nil
}

func decodeInto(data []byte, out runtime.Object) error {
	if u, ok := out.(*unstructured.Unstructured); ok {
		return utiljson.Unmarshal(data, &u.Object)
	}
	return json.Unmarshal(data, out)
}

// assign sets to to from, with which it shares parts.
func assign(to, from runtime.Object) error {
	if t, ok := to.(runtime.Unstructured); ok {
		if f, ok := from.(runtime.Unstructured); ok {
			t.SetUnstructuredContent(f.UnstructuredContent())
			return nil
		}
	}
	t, f := reflect.ValueOf(to), reflect.ValueOf(from)
	if t.Type() == f.Type() && t.Kind() == reflect.Pointer {
		t.Elem().Set(f.Elem())
		return nil
	}
	data, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("assign %T to %T: %w", from, to, err)
	}
	if t.Kind() == reflect.Pointer {
		t.Elem().SetZero()
	}
	if err := decodeInto(data, to); err != nil {
		return fmt.Errorf("assign %T to %T: %w", from, to, err)
	}
	return nil
}
