package loop

import (
	"maps"
	"slices"
	"strings"

	"portico/resource"
)

// Snapshot is the whole of a followed selection at one time. It is immutable.
type Snapshot struct {
	// Items are the objects in key order.
	Items []*resource.Object
	// Revision is a revision of the store that Items are at least as new as.
	Revision int64
}

// Get returns the object of a key; nil if there is none.
func (s Snapshot) Get(key resource.Key) *resource.Object {
	if i, found := search(s.Items, key); found {
		return s.Items[i]
	}
	return nil
}

// Removed returns the objects of old that are not in s, or are there with another uid.
func (s Snapshot) Removed(old Snapshot) (out []*resource.Object) {
	items := s.Items
	for _, o := range old.Items {
		for len(items) > 0 && items[0] != o && compareKeys(items[0].Key(), o.Key()) < 0 {
			items = items[1:]
		}
		if len(items) == 0 || items[0] != o && (items[0].Key() != o.Key() || items[0].UID != o.UID) {
			out = append(out, o)
		}
	}
	return out
}

func search(items []*resource.Object, key resource.Key) (i int, found bool) {
	return slices.BinarySearchFunc(items, key, func(o *resource.Object, key resource.Key) int {
		return compareKeys(o.Key(), key)
	})
}

// compareKeys orders keys as storage paths: by the bytes of "namespace/name".
func compareKeys(a, b resource.Key) int {
	if a.Namespace == b.Namespace {
		return strings.Compare(a.Name, b.Name)
	}
	return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
}

// changes are the new states of objects by key; nil is a deleted object.
type changes map[resource.Key]*resource.Object

// merge returns items with the changes applied. It does not modify items.
func merge(items []*resource.Object, pending changes) []*resource.Object {
	keys := slices.SortedFunc(maps.Keys(pending), compareKeys)
	out := make([]*resource.Object, 0, len(items)+len(keys))
	for _, key := range keys {
		i, found := search(items, key)
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

// same reports whether two lists hold the same revisions of the same objects.
func same(a, b []*resource.Object) bool {
	return slices.EqualFunc(a, b, func(x, y *resource.Object) bool {
		return x == y || x.Revision == y.Revision && x.UID == y.UID && x.Key() == y.Key()
	})
}
