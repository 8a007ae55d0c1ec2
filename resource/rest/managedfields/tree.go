package managedfields

import (
	"maps"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// fieldTree is a set of fields in the form of fieldsV1: a key for each part, an empty
// map for a field that is in the set without fields below it, and "." in a field that
// is in the set beside fields below it. The root is in no set. A tree that is part of
// an object is not changed.
type fieldTree = map[string]any

// self is the key that says that the node itself is in the set.
const self = "."

// below returns the node of that name; nil if there is none.
func below(t fieldTree, name string) fieldTree {
	node, _ := t[name].(fieldTree)
	return node
}

// inSet reports whether a node is in the set, not only something below it.
func inSet(node fieldTree) bool {
	if node == nil {
		return false
	}
	_, marked := node[self]
	return marked || len(node) == 0
}

// intersect reports whether two sets have a field in common.
func intersect(a, b fieldTree) bool {
	if len(b) < len(a) {
		a, b = b, a
	}
	for name := range a {
		if name == self {
			continue
		}
		x, y := below(a, name), below(b, name)
		if y != nil && (inSet(x) && inSet(y) || intersect(x, y)) {
			return true
		}
	}
	return false
}

// contains reports whether a set has all fields of another.
func contains(all, some fieldTree) bool {
	for name := range some {
		if name == self {
			continue
		}
		x, y := below(all, name), below(some, name)
		if x == nil || inSet(y) && !inSet(x) || !contains(x, y) {
			return false
		}
	}
	return true
}

// without returns the fields of t that are not in cut. Fields below a field of cut
// stay. The result shares nodes with t and is t if nothing is removed; nil if nothing
// is left.
func without(t, cut fieldTree) fieldTree {
	if !intersect(t, cut) {
		return t
	}
	out := maps.Clone(t)
	for name := range cut {
		node, gone := below(t, name), below(cut, name)
		if name == self || node == nil {
			continue
		}
		stays := inSet(node) && !inSet(gone)
		rest := without(node, gone)
		if _, marked := rest[self]; marked && !stays {
			rest = maps.Clone(rest)
			delete(rest, self)
		}
		switch {
		case len(rest) == 0 && !stays:
			delete(out, name)
		case len(rest) == 1 && rest[self] != nil:
			out[name] = fieldTree{}
		default:
			out[name] = rest
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// union returns the fields of both. It shares nodes with them and is a if that
// contains b.
func union(a, b fieldTree) fieldTree {
	if contains(a, b) {
		return a
	}
	if a == nil {
		return b
	}
	out := maps.Clone(a)
	for name, value := range b {
		node, more := below(a, name), below(b, name)
		if name == self {
			continue
		}
		if node == nil {
			out[name] = value
			continue
		}
		both := maps.Clone(union(node, more))
		delete(both, self)
		if len(both) > 0 && (inSet(node) || inSet(more)) {
			both[self] = fieldTree{}
		}
		out[name] = both
	}
	return out
}

// fieldSet returns a tree as upstream's set. Parts are inserted in order, because each
// insertion between others moves those behind it. It returns false for an invalid
// name.
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
