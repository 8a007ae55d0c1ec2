package managedfields

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

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
