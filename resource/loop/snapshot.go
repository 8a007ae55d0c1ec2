package loop

import (
	"slices"
	"strings"

	"portico/resource"
)

// Snapshot is the whole of a followed selection at one time. It is immutable.
type Snapshot struct {
	// Items are the objects in key order.
	Items []*resource.Object
	// Revision is the store's revision that Items are at least as new as.
	Revision int64
}

// Get returns the object of that key, nil if there is none.
func (s Snapshot) Get(key resource.Key) *resource.Object {
	i, found := slices.BinarySearchFunc(s.Items, key, func(o *resource.Object, key resource.Key) int {
		return compareKeys(o.Key(), key)
	})
	if !found {
		return nil
	}
	return s.Items[i]
}

// compareKeys orders keys as storage paths are ordered: by the bytes of
// "namespace/name", in which '-' and '.' come before the slash.
func compareKeys(a, b resource.Key) int {
	if a.Namespace == b.Namespace {
		return strings.Compare(a.Name, b.Name)
	}
	n := min(len(a.Namespace), len(b.Namespace))
	if c := strings.Compare(a.Namespace[:n], b.Namespace[:n]); c != 0 {
		return c
	}
	// One namespace is the beginning of the other: its slash meets the other's
	// next byte.
	if len(a.Namespace) < len(b.Namespace) {
		if '/' < b.Namespace[n] {
			return -1
		}
		return 1
	}
	if a.Namespace[n] < '/' {
		return -1
	}
	return 1
}

// changes collects what happened to objects; nil is a deleted one.
type changes map[resource.Key]*resource.Object

// merge returns items with the changes made. It does not change items.
func merge(items []*resource.Object, pending changes) []*resource.Object {
	keys := make([]resource.Key, 0, len(pending))
	for k := range pending {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareKeys)
	out := make([]*resource.Object, 0, len(items)+len(keys))
	for _, key := range keys {
		i, found := slices.BinarySearchFunc(items, key, func(o *resource.Object, key resource.Key) int {
			return compareKeys(o.Key(), key)
		})
		out = append(out, items[:i]...)
		items = items[i:]
		if found {
			items = items[1:]
		}
		if o := pending[key]; o != nil {
			out = append(out, o)
		}
	}
	return append(out, items...)
}

// same reports whether two item lists hold the same revisions of the same
// objects.
func same(a, b []*resource.Object) bool {
	return slices.EqualFunc(a, b, func(x, y *resource.Object) bool {
		return x == y || x.Revision == y.Revision && x.UID == y.UID && x.Key() == y.Key()
	})
}
