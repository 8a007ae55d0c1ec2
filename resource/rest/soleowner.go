package rest

import (
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"
)

// recordNew is record for a new object without Go types, whose creator owns all
// of it: what upstream's tracker finds out by checking the object and an empty
// one and comparing the two, one walk over the object tells. false is that this
// walk cannot tell, and nothing was recorded.
//
// The record is the same, down to the byte: FuzzSoleOwner compares them.
func (w *write) recordNew(obj *unstructured.Unstructured) (bool, error) {
	meta, ok := obj.Object["metadata"].(map[string]any)
	if !ok || w.subresource != "" || obj.GroupVersionKind() != w.gvk || !utf8.ValidString(w.owner) {
		return false, nil
	}
	if _, sent := meta["managedFields"]; sent {
		return false, nil
	}
	converter, err := w.ownership()
	if err != nil {
		return false, err
	}
	root, ok := typeOf(converter, w.gvk)
	if !ok {
		return false, nil
	}
	fields, ok := ownedByOne(root, obj.Object, w.resets)
	switch {
	case !ok:
		return false, nil
	case len(fields) > 0:
		meta["managedFields"] = []any{w.entryOf(fields)}
	}
	return true, nil
}

// entryOf is the entry of managedFields for an update by this write's owner, as
// content of an object without Go types; fields is a map or OwnedText.
func (w *write) entryOf(fields any) map[string]any {
	owner := w.owner
	if owner == "" {
		owner = "unknown"
	}
	return map[string]any{
		"manager": owner, "operation": string(metav1.ManagedFieldsOperationUpdate), "apiVersion": w.gvk.GroupVersion().String(),
		"time": time.Now().UTC().Format(time.RFC3339), "fieldsType": "FieldsV1", "fieldsV1": fields,
	}
}

// typeOf returns the type of a kind's objects, as ownership sees it.
func typeOf(converter managedfields.TypeConverter, gvk schema.GroupVersionKind) (*smdtyped.TypedValue, bool) {
	empty := &unstructured.Unstructured{Object: map[string]any{}}
	empty.SetGroupVersionKind(gvk)
	v, err := converter.ObjectToTyped(empty)
	return v, err == nil
}

// ownedByOne returns fieldsV1 of somebody who owns all of an object but resets
// and what nobody owns: apiVersion and kind, and what identifies the object.
func ownedByOne(root *smdtyped.TypedValue, object map[string]any, resets []string) (map[string]any, bool) {
	t := ownerWalk{root.Schema()}
	atom, ok := t.schema.Resolve(root.TypeRef())
	if !ok || atom.Map == nil || isAtomic(atom.Map.ElementRelationship) {
		return nil, false
	}
	fields := make(map[string]any, len(object))
	for name, value := range object {
		owned, ok := t.field(atom.Map, name, value, true)
		if !ok {
			return nil, false
		}
		switch name {
		case "apiVersion", "kind":
			continue
		case "metadata":
			if owned = ownedMetadata(owned); owned == nil {
				continue
			}
		}
		if !slices.Contains(resets, name) {
			fields["f:"+name] = owned
		}
	}
	return fields, true
}

// unownedMetadata are the fields of metadata that nobody owns.
func unownedMetadata() []string {
	return []string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"}
}

// ownedMetadata leaves out of the fields of metadata those that nobody owns; nil
// is that nothing is left.
func ownedMetadata(fields map[string]any) map[string]any {
	for _, name := range unownedMetadata() {
		// Only the field itself is nobody's, not what is in it.
		if in, ok := fields["f:"+name].(map[string]any); ok {
			if delete(in, "."); len(in) == 0 {
				delete(fields, "f:"+name)
			}
		}
	}
	if delete(fields, "."); len(fields) == 0 {
		return nil
	}
	return fields
}
