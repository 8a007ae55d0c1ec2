package managedfields

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// ordered is a value with maps that are iterated in the order of their keys. Upstream's sets
// are sorted slices: a field in order is appended, while the random order of a Go map moves half
// of the fields for each, which takes ten seconds for a map of 50,000 fields.
type ordered struct{ value.Value }

// inOrder returns v as an ordered value, or nil for nil.
func inOrder(v value.Value) value.Value {
	if v == nil {
		return nil
	}
	return ordered{v}
}

// AsMap implements value.Value.
func (v ordered) AsMap() value.Map { return orderedMap{v.Value.AsMap()} }

// AsMapUsing implements value.Value. Wrapped values are not returned to the
// allocator.
func (v ordered) AsMapUsing(a value.Allocator) value.Map { return orderedMap{v.Value.AsMapUsing(a)} }

// AsList implements value.Value.
func (v ordered) AsList() value.List { return orderedList{v.Value.AsList()} }

// AsListUsing implements value.Value.
func (v ordered) AsListUsing(a value.Allocator) value.List {
	return orderedList{v.Value.AsListUsing(a)}
}

type orderedMap struct{ value.Map }

// bareMap returns the map that an orderedMap wraps.
func bareMap(m value.Map) value.Map {
	if o, ok := m.(orderedMap); ok {
		return o.Map
	}
	return m
}

// Get implements value.Map.
func (m orderedMap) Get(key string) (value.Value, bool) { return m.GetUsing(value.HeapAllocator, key) }

// GetUsing implements value.Map.
func (m orderedMap) GetUsing(a value.Allocator, key string) (value.Value, bool) {
	v, ok := m.Map.GetUsing(a, key)
	return inOrder(v), ok
}

// Equals implements value.Map.
func (m orderedMap) Equals(other value.Map) bool { return m.Map.Equals(bareMap(other)) }

// EqualsUsing implements value.Map.
func (m orderedMap) EqualsUsing(a value.Allocator, other value.Map) bool {
	return m.Map.EqualsUsing(a, bareMap(other))
}

// Iterate implements value.Map.
func (m orderedMap) Iterate(fn func(string, value.Value) bool) bool {
	return m.IterateUsing(value.HeapAllocator, fn)
}

// IterateUsing implements value.Map.
func (m orderedMap) IterateUsing(a value.Allocator, fn func(string, value.Value) bool) bool {
	keys := make([]string, 0, m.Length())
	m.Map.IterateUsing(a, func(key string, _ value.Value) bool {
		keys = append(keys, key)
		return true
	})
	slices.Sort(keys)
	for _, key := range keys {
		v, ok := m.Map.GetUsing(a, key)
		if ok && !fn(key, ordered{v}) {
			return false
		}
		a.Free(v)
	}
	return true
}

// Zip implements value.Map.
func (m orderedMap) Zip(other value.Map, order value.MapTraverseOrder, fn func(string, value.Value, value.Value) bool) bool {
	return m.ZipUsing(value.HeapAllocator, other, order, fn)
}

// ZipUsing implements value.Map. The order is always that of the keys.
func (m orderedMap) ZipUsing(a value.Allocator, other value.Map, _ value.MapTraverseOrder, fn func(string, value.Value, value.Value) bool) bool {
	return value.MapZipUsing(a, m.Map, bareMap(other), value.LexicalKeyOrder, func(key string, l, r value.Value) bool {
		return fn(key, inOrder(l), inOrder(r))
	})
}

// orderedList is a list of ordered values, in its own order.
type orderedList struct{ value.List }

// At implements value.List.
func (l orderedList) At(i int) value.Value { return inOrder(l.List.At(i)) }

// AtUsing implements value.List.
func (l orderedList) AtUsing(a value.Allocator, i int) value.Value {
	return inOrder(l.List.AtUsing(a, i))
}
