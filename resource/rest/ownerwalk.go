package rest

import (
	"encoding/json"
	"slices"
	"strings"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// ownerWalk walks a value along its type and returns fieldsV1 of all that is
// owned in it: an empty map for a leaf, else one with "." and a key for each
// part. Its methods return false where the value does not fit the type, or
// where it is not plain how parts are named; upstream's tracker decides then.
// What is in a leaf only has to fit: without keep, nothing is made.
type ownerWalk struct{ schema *smd.Schema }

// field is the value of a field of a map.
func (t ownerWalk) field(m *smd.Map, name string, value any, keep bool) (map[string]any, bool) {
	ref := m.ElementType
	if f, ok := m.FindField(name); ok {
		ref = f.Type
	} else if ref == (smd.TypeRef{}) {
		return nil, false
	}
	return t.value(ref, value, keep)
}

func (t ownerWalk) value(ref smd.TypeRef, value any, keep bool) (map[string]any, bool) {
	atom, ok := t.schema.Resolve(ref)
	if !ok || atom == (smd.Atom{}) {
		return nil, false
	}
	switch v := value.(type) {
	case nil: // null is a leaf of every type
		return made(keep), true
	case map[string]any:
		return t.mapping(atom.Map, v, keep)
	case []any:
		// Where a type has several forms, a value of none of them is held
		// against the first; so only maps come before lists.
		return t.list(atom.List, v, keep)
	}
	if atom.Scalar == nil || !fitsScalar(*atom.Scalar, value) {
		return nil, false
	}
	return made(keep), true
}

// made is an empty map to be kept, or nothing.
func made(keep bool) map[string]any {
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

func (t ownerWalk) mapping(m *smd.Map, value map[string]any, keep bool) (map[string]any, bool) {
	if m == nil {
		return nil, false
	}
	parts := keep && len(value) > 0 && !isAtomic(m.ElementRelationship)
	owned := made(keep)
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

func (t ownerWalk) list(l *smd.List, value []any, keep bool) (map[string]any, bool) {
	if l == nil {
		return nil, false
	}
	whole := isAtomic(l.ElementRelationship)
	if !whole && l.ElementRelationship != smd.Associative {
		return nil, false
	}
	// The items of a list that is not whole must have names, even in a leaf.
	keep = keep || !whole
	owned := made(keep)
	for _, item := range value {
		in, ok := t.value(l.ElementType, item, !whole)
		if !ok {
			return nil, false
		}
		if whole {
			continue
		}
		name, ok := itemName(l, item)
		if _, twice := owned[name]; !ok || twice {
			return nil, false
		}
		owned[name] = in
	}
	if !whole && len(value) > 0 {
		owned["."] = map[string]any{}
	}
	return owned, true
}

// itemName is how an item of a list is named: by its keys, or by itself.
func itemName(l *smd.List, item any) (string, bool) {
	if len(l.Keys) == 0 {
		text, ok := plainJSON(item)
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
		// A key that is left out may have a default.
		value, found := fields[key]
		text, ok := plainJSON(value)
		quoted, plain := plainJSON(key)
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

// plainJSON is a value in JSON, if it is one whose text says which values are
// the same, and that everybody writes in the same way.
func plainJSON(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		unlike := func(r rune) bool { return r < ' ' || r >= 0x7f || strings.ContainsRune(`"\<>&`, r) }
		if strings.ContainsFunc(v, unlike) {
			return "", false
		}
	case int64, bool:
	default:
		return "", false
	}
	text, err := json.Marshal(value)
	return string(text), err == nil
}

func isAtomic(r smd.ElementRelationship) bool { return r == smd.Atomic }
