package managedfields

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	smdtyped "sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// walk walks a value along its type and returns fieldsV1 of all its fields: an empty map for
// a leaf, otherwise a map with "." and a key for each child. Its methods return false if the
// value does not match the type or the name of a child is not certain; then upstream's
// manager is used. Children of a leaf only have to match: without keep, no map is built.
type walk struct{ schema *smd.Schema }

// field walks the value of a field of a map.
func (t walk) field(m *smd.Map, name string, value any, keep bool) (map[string]any, bool) {
	ref := m.ElementType
	if f, ok := m.FindField(name); ok {
		ref = f.Type
	} else if ref == (smd.TypeRef{}) {
		return nil, false
	}
	return t.value(ref, value, keep)
}

func (t walk) value(ref smd.TypeRef, value any, keep bool) (map[string]any, bool) {
	atom, ok := t.schema.Resolve(ref)
	if !ok || atom == (smd.Atom{}) {
		return nil, false
	}
	switch v := value.(type) {
	case nil: // null is a leaf of every type
		return emptyIf(keep), true
	case map[string]any:
		return t.mapping(atom.Map, v, keep)
	case []any:
		return t.list(atom.List, v, keep)
	}
	if atom.Scalar == nil || !fitsScalar(*atom.Scalar, value) {
		return nil, false
	}
	return emptyIf(keep), true
}

// emptyIf returns an empty map with keep, otherwise nil.
func emptyIf(keep bool) map[string]any {
	if !keep {
		return nil
	}
	return map[string]any{}
}

func fitsScalar(scalar smd.Scalar, value any) bool {
	switch value.(type) {
	case string:
		return scalar == smd.String || scalar == smd.Untyped
	case bool:
		return scalar == smd.Boolean || scalar == smd.Untyped
	case int64, float64:
		return scalar == smd.Numeric || scalar == smd.Untyped
	}
	return false
}

func (t walk) mapping(m *smd.Map, value map[string]any, keep bool) (map[string]any, bool) {
	if m == nil {
		return nil, false
	}
	parts := keep && len(value) > 0 && !isAtomic(m.ElementRelationship)
	owned := emptyIf(keep)
	for name, item := range value {
		in, ok := t.field(m, name, item, parts)
		if !ok {
			return nil, false
		}
		if parts {
			owned["f:"+name] = in
		}
	}
	if parts {
		owned["."] = map[string]any{}
	}
	return owned, true
}

func (t walk) list(l *smd.List, value []any, keep bool) (map[string]any, bool) {
	if l == nil {
		return nil, false
	}
	atomic := isAtomic(l.ElementRelationship)
	if !atomic && l.ElementRelationship != smd.Associative {
		return nil, false
	}
	// Items of an associative list need names, even in a leaf.
	keep = keep || !atomic
	owned := emptyIf(keep)
	for _, item := range value {
		in, ok := t.value(l.ElementType, item, !atomic)
		if !ok {
			return nil, false
		}
		if atomic {
			continue
		}
		name, ok := itemName(l, item)
		if _, twice := owned[name]; !ok || twice {
			return nil, false
		}
		owned[name] = in
	}
	if !atomic && len(value) > 0 {
		owned["."] = map[string]any{}
	}
	return owned, true
}

// itemName returns the name of a list item: its keys, or its value.
func itemName(l *smd.List, item any) (string, bool) {
	if len(l.Keys) == 0 {
		text, ok := canonicalJSON(item)
		return "v:" + text, ok
	}
	fields, ok := item.(map[string]any)
	if !ok {
		return "", false
	}
	keys := l.Keys
	if len(keys) > 1 {
		keys = slices.Sorted(slices.Values(keys))
	}
	var name strings.Builder
	name.WriteString("k:{")
	for i, key := range keys {
		// A missing key may have a default.
		value, found := fields[key]
		text, ok := canonicalJSON(value)
		quoted, plain := canonicalJSON(key)
		if !found || !ok || !plain {
			return "", false
		}
		if i > 0 {
			name.WriteByte(',')
		}
		name.WriteString(quoted + ":" + text)
	}
	name.WriteByte('}')
	return name.String(), true
}

// canonicalJSON returns the JSON that upstream writes of a value in a name; false: not of this
// type.
func canonicalJSON(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		escaped := func(r rune) bool { return r < ' ' || r >= 0x7f || strings.ContainsRune(`"\<>&`, r) }
		if !strings.ContainsFunc(v, escaped) {
			return `"` + v + `"`, true
		}
	case int64, bool:
	default:
		return "", false
	}
	text, err := value.ToJSON(value.NewValueInterface(v))
	return string(text), err == nil
}

func isAtomic(r smd.ElementRelationship) bool { return r == smd.Atomic }

// typeOf returns the type of a kind's objects.
func typeOf(types upstream.TypeConverter, gvk schema.GroupVersionKind) (*smdtyped.TypedValue, bool) {
	empty := &unstructured.Unstructured{Object: map[string]any{}}
	empty.SetGroupVersionKind(gvk)
	v, err := types.ObjectToTyped(empty)
	return v, err == nil
}

// unownedMetadata are the fields of metadata that no manager owns.
var unownedMetadata = [...]string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields", "resourceVersion"}

// ownedMetadata removes unownedMetadata from the fields of metadata; nil: none remain.
func ownedMetadata(fields fieldTree) fieldTree {
	for _, name := range unownedMetadata {
		// Children of the field may be owned.
		if in, ok := fields["f:"+name].(map[string]any); ok {
			if delete(in, self); len(in) == 0 {
				delete(fields, "f:"+name)
			}
		}
	}
	if delete(fields, self); len(fields) == 0 {
		return nil
	}
	return fields
}

// fieldTree is a set of fields as fieldsV1 has it: a key for each path element; an empty map
// for a field of the set without children in the set; the key "." in a field of the set with
// such children. The root is never in the set.
type fieldTree = map[string]any

// self is the key of a node that is in the set itself.
const self = "."

// below returns the child of that name; nil: none.
func below(t fieldTree, name string) fieldTree {
	node, _ := t[name].(fieldTree)
	return node
}

// inSet reports whether a node is in the set itself.
func inSet(node fieldTree) bool {
	if node == nil {
		return false
	}
	_, marked := node[self]
	return marked || len(node) == 0
}

// fieldSet converts a tree to upstream's set; false: a name is invalid. Elements are inserted
// in order, because an insertion moves all elements after it.
func fieldSet(t fieldTree) (*fieldpath.Set, bool) {
	type part struct {
		element fieldpath.PathElement
		node    fieldTree
	}
	parts := make([]part, 0, len(t))
	for name := range t {
		if name == self {
			continue
		}
		element, err := fieldpath.DeserializePathElement(name)
		if err != nil {
			return nil, false
		}
		parts = append(parts, part{element, below(t, name)})
	}
	slices.SortFunc(parts, func(a, b part) int { return a.element.Compare(b.element) })
	set := &fieldpath.Set{}
	for _, p := range parts {
		if inSet(p.node) {
			set.Members.Insert(p.element)
		}
		if len(p.node) == 0 || len(p.node) == 1 && p.node[self] != nil {
			continue
		}
		inner, ok := fieldSet(p.node)
		if !ok {
			return nil, false
		}
		*set.Children.Descend(p.element) = *inner
	}
	return set, true
}
