package managedfields

import (
	"cmp"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// recordCreate is Update for a new object, in one walk along its type. It returns false, and
// has recorded nothing, for an object that only upstream's manager can record.
func (t *Tracker) recordCreate(obj Object) (bool, error) {
	if t.Codec == nil || t.Projected || t.Codec.Hub() != t.GVK.GroupVersion() || obj.GetObjectKind().GroupVersionKind() != t.GVK || !utf8.ValidString(t.Manager) {
		return false, nil
	}
	content, ok := newContent(obj)
	if !ok {
		return false, nil
	}
	types, err := t.Types()
	if err != nil {
		return false, err
	}
	root, ok := typeOf(types, t.GVK)
	if !ok {
		return false, nil
	}
	live, err := t.live(nil)
	if err != nil {
		return false, err
	}
	empty, err := runtime.DefaultUnstructuredConverter.ToUnstructured(live)
	if err != nil {
		return false, nil
	}
	w := walk{root.Schema()}
	atom, ok := w.schema.Resolve(root.TypeRef())
	if !ok || atom.Map == nil || isAtomic(atom.Map.ElementRelationship) {
		return false, nil
	}
	fields, ok := w.added(atom.Map, empty, content)
	if !ok {
		return false, nil
	}
	for _, path := range t.Resets {
		if strings.Contains(path, ".") {
			return false, nil
		}
		delete(fields, "f:"+path)
	}
	if meta, ok := fields["f:metadata"].(fieldTree); ok && ownedMetadata(meta) == nil {
		delete(fields, "f:metadata")
	}
	return len(fields) == 0 || t.setEntry(obj, fields), nil
}

// newContent returns the fields of a new object; false if it has managedFields.
func newContent(obj Object) (map[string]any, bool) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		meta, ok := u.Object["metadata"].(map[string]any)
		_, sent := meta["managedFields"]
		return u.Object, ok && !sent
	}
	if obj.GetManagedFields() != nil {
		return nil, false
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	return content, err == nil
}

// added returns the fields of a map that differ from those of an empty object, which with Go
// types has fields that are never omitted. A field that it has is not owned, only its
// children; a null counts as the field.
func (t walk) added(m *smd.Map, empty, content map[string]any) (fieldTree, bool) {
	fields := fieldTree{}
	for name, value := range content {
		in, ok := t.field(m, name, value, true)
		if !ok {
			return nil, false
		}
		was, found := empty[name]
		if found && reflect.DeepEqual(was, value) {
			continue
		}
		before, isMap := was.(map[string]any)
		switch {
		case !found || len(in) == 0: // also a modified leaf
		case was == nil:
			delete(in, self)
		case isMap:
			now, ok := value.(map[string]any)
			child := t.child(m, name)
			if !ok || child == nil {
				return nil, false
			}
			if in, ok = t.added(child, before, now); !ok {
				return nil, false
			}
			if len(in) == 0 {
				continue
			}
		default:
			return nil, false
		}
		fields["f:"+name] = in
	}
	return fields, true
}

// child returns the type of a field that is a map; nil: it is none.
func (t walk) child(m *smd.Map, name string) *smd.Map {
	ref := m.ElementType
	if f, ok := m.FindField(name); ok {
		ref = f.Type
	}
	atom, ok := t.schema.Resolve(ref)
	if !ok || atom.Map == nil || isAtomic(atom.Map.ElementRelationship) {
		return nil
	}
	return atom.Map
}

// setEntry sets the only entry of managedFields of a new object; false: a name is invalid.
func (t *Tracker) setEntry(obj Object, fields fieldTree) bool {
	manager, version, now := cmp.Or(t.Manager, "unknown"), t.GVK.GroupVersion().String(), time.Now().UTC().Truncate(time.Second)
	if u, ok := obj.(*unstructured.Unstructured); ok {
		entry := map[string]any{
			"manager": manager, "operation": string(metav1.ManagedFieldsOperationUpdate), "apiVersion": version,
			"fieldsType": "FieldsV1", "fieldsV1": fields, "time": now.Format(time.RFC3339),
		}
		if t.Subresource != "" {
			entry["subresource"] = t.Subresource
		}
		u.Object["metadata"].(map[string]any)["managedFields"] = []any{entry}
		return true
	}
	set, ok := fieldSet(fields)
	if !ok {
		return false
	}
	text, err := set.ToJSON()
	if err != nil {
		return false
	}
	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: version, Subresource: t.Subresource,
		Time: &metav1.Time{Time: now}, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{},
	}
	entry.FieldsV1.SetRawBytes(text)
	obj.SetManagedFields([]metav1.ManagedFieldsEntry{entry})
	return true
}
