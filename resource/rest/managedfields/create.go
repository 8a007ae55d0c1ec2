package managedfields

import (
	"cmp"
	"slices"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// recordCreate is Update for a new object without Go types, in one walk along its type. It
// returns false, and has recorded nothing, for an object that only upstream's manager can
// record.
func (t *Tracker) recordCreate(obj Object) (bool, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || t.Codec == nil || t.Projected || t.Codec.Hub() != t.GVK.GroupVersion() || u.GroupVersionKind() != t.GVK || !utf8.ValidString(t.Manager) {
		return false, nil
	}
	meta, ok := u.Object["metadata"].(map[string]any)
	if _, sent := meta["managedFields"]; !ok || sent {
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
	w := walk{root.Schema()}
	atom, ok := w.schema.Resolve(root.TypeRef())
	if !ok || atom.Map == nil || isAtomic(atom.Map.ElementRelationship) {
		return false, nil
	}
	fields := fieldTree{}
	for name, value := range u.Object {
		in, ok := w.field(atom.Map, name, value, true)
		if !ok {
			return false, nil
		}
		if name != "apiVersion" && name != "kind" && !slices.Contains(t.Resets, name) {
			fields["f:"+name] = in
		}
	}
	if meta, ok := fields["f:metadata"].(fieldTree); ok && ownedMetadata(meta) == nil {
		delete(fields, "f:metadata")
	}
	if len(fields) == 0 {
		return true, nil
	}
	entry := map[string]any{
		"manager": cmp.Or(t.Manager, "unknown"), "operation": string(metav1.ManagedFieldsOperationUpdate), "apiVersion": t.GVK.GroupVersion().String(),
		"fieldsType": "FieldsV1", "fieldsV1": fields, "time": time.Now().UTC().Format(time.RFC3339),
	}
	if t.Subresource != "" {
		entry["subresource"] = t.Subresource
	}
	meta["managedFields"] = []any{entry}
	return true, nil
}
