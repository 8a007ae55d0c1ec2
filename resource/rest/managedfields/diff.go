package managedfields

import (
	"slices"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// diff walks two states of an object along their type and notes what differs, as
// upstream's comparison does: set is what the new state adds or modifies, removed
// what it lacks. Like walk it gives up by returning false; also where a value changes
// its form.
type diff struct {
	walk
	set, removed fieldTree
	// path has the names above the value that is compared.
	path []string
}

// note adds the value of that name at path to a tree, with the fields in it.
func (d *diff) note(tree fieldTree, name string, fields fieldTree) {
	for _, above := range d.path {
		next := below(tree, above)
		if next == nil {
			next = fieldTree{}
			tree[above] = next
		}
		tree = next
	}
	tree[name] = fields
}

// object compares two states of an object. Fields in resets and fields that no manager
// owns are not noted.
func (d *diff) object(ref smd.TypeRef, was, is map[string]any, resets []string) bool {
	atom, ok := d.schema.Resolve(ref)
	if !ok || atom.Map == nil || isAtomic(atom.Map.ElementRelationship) {
		return false
	}
	for name := range bothKeys(was, is) {
		a, before := was[name]
		b, after := is[name]
		in := *d
		if slices.Contains(resets, name) {
			in.set, in.removed = fieldTree{}, fieldTree{}
		}
		if !in.field(atom.Map, name, a, b, before, after) {
			return false
		}
	}
	dropUnowned(d.set)
	dropUnowned(d.removed)
	return true
}

// bothKeys iterates over the keys of two maps.
func bothKeys(a, b map[string]any) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range a {
			if !yield(name) {
				return
			}
		}
		for name := range b {
			if _, twice := a[name]; !twice && !yield(name) {
				return
			}
		}
	}
}

// dropUnowned removes the fields that identify an object and its type.
func dropUnowned(t fieldTree) {
	delete(t, "f:apiVersion")
	delete(t, "f:kind")
	if meta := below(t, "f:metadata"); meta != nil && ownedMetadata(meta) == nil {
		delete(t, "f:metadata")
	}
}

// field compares the values of a field of a map.
func (d *diff) field(m *smd.Map, name string, was, is any, before, after bool) bool {
	switch {
	case before && after:
		ref := m.ElementType
		if f, ok := m.FindField(name); ok {
			ref = f.Type
		} else if ref == (smd.TypeRef{}) {
			return false
		}
		return d.values(ref, "f:"+name, was, is)
	case before:
		fields, ok := d.walk.field(m, name, was, true)
		if ok {
			d.note(d.removed, "f:"+name, fields)
		}
		return ok
	default:
		fields, ok := d.walk.field(m, name, is, true)
		if ok {
			d.note(d.set, "f:"+name, fields)
		}
		return ok
	}
}

// values compares two values of that name. A null has the form of the other value.
func (d *diff) values(ref smd.TypeRef, name string, was, is any) bool {
	atom, ok := d.schema.Resolve(ref)
	if !ok || atom == (smd.Atom{}) {
		return false
	}
	a, wasMap := was.(map[string]any)
	b, isMap := is.(map[string]any)
	x, wasList := was.([]any)
	y, isList := is.([]any)
	switch {
	case was == nil && is == nil:
		return true
	case (wasMap || was == nil) && (isMap || is == nil):
		return d.maps(atom.Map, ref, name, a, b, was, is)
	case (wasList || was == nil) && (isList || is == nil):
		return d.lists(atom.List, ref, name, x, y, was, is)
	case wasMap || isMap || wasList || isList:
		return false
	}
	return d.leaf(ref, name, was, is)
}

// leaf compares two values whose parts are not owned.
func (d *diff) leaf(ref smd.TypeRef, name string, was, is any) bool {
	if _, ok := d.value(ref, was, false); !ok {
		return false
	}
	if sameValue(was, is) {
		return true
	}
	d.note(d.set, name, fieldTree{})
	_, ok := d.value(ref, is, false)
	return ok
}

func (d *diff) maps(m *smd.Map, ref smd.TypeRef, name string, a, b map[string]any, was, is any) bool {
	if m == nil {
		return false
	}
	if isAtomic(m.ElementRelationship) || len(a) == 0 && len(b) == 0 {
		return d.leaf(ref, name, was, is)
	}
	d.path = append(d.path, name)
	defer func() { d.path = d.path[:len(d.path)-1] }()
	for key, x := range a {
		y, after := b[key]
		if !d.field(m, key, x, y, true, after) {
			return false
		}
	}
	for key, y := range b {
		if _, before := a[key]; !before && !d.field(m, key, nil, y, false, true) {
			return false
		}
	}
	return true
}

func (d *diff) lists(l *smd.List, ref smd.TypeRef, name string, a, b []any, was, is any) bool {
	if l == nil {
		return false
	}
	if isAtomic(l.ElementRelationship) || len(a) == 0 && len(b) == 0 {
		return d.leaf(ref, name, was, is)
	}
	if l.ElementRelationship != smd.Associative {
		return false
	}
	before, ok := namedItems(l, a)
	if !ok {
		return false
	}
	after, ok := namedItems(l, b)
	if !ok {
		return false
	}
	d.path = append(d.path, name)
	defer func() { d.path = d.path[:len(d.path)-1] }()
	for item, x := range before {
		y, both := after[item]
		if both {
			if !d.values(l.ElementType, item, x, y) {
				return false
			}
			continue
		}
		fields, ok := d.value(l.ElementType, x, true)
		if !ok {
			return false
		}
		d.note(d.removed, item, fields)
	}
	for item, y := range after {
		if _, both := before[item]; both {
			continue
		}
		fields, ok := d.value(l.ElementType, y, true)
		if !ok {
			return false
		}
		d.note(d.set, item, fields)
	}
	return true
}

// namedItems returns the items of a list by their names. It returns false if one has
// no certain name, or two have the same.
func namedItems(l *smd.List, items []any) (map[string]any, bool) {
	named := make(map[string]any, len(items))
	for _, item := range items {
		name, ok := itemName(l, item)
		if !ok {
			return nil, false
		}
		named[name] = item
	}
	return named, len(named) == len(items)
}

// sameValue reports whether two values are equal; integers and floats are equal if their
// numbers are.
func sameValue(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for key, in := range x {
			other, found := y[key]
			if !found || !sameValue(in, other) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, sameValue)
	case int64:
		if y, ok := b.(float64); ok {
			return float64(x) == y
		}
	case float64:
		if y, ok := b.(int64); ok {
			return x == float64(y)
		}
	}
	switch b.(type) {
	case map[string]any, []any:
		return false
	}
	return a == b
}
