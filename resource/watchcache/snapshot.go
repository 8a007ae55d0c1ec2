package watchcache

import (
	"bytes"
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"portico/resource"
)

// item is an object in the tree.
type item struct {
	path string
	obj  *resource.Object
}

// tree holds objects by storage path.
type tree = btree.BTreeG[item]

func newTree() *tree {
	return btree.NewBTreeGOptions(func(a, b item) bool { return a.path < b.path }, btree.Options{NoLocks: true})
}

// snapshot is the state of all objects at one revision. Immutable.
type snapshot struct {
	tree *tree
	rev  int64
	// unreadable are the sorted paths of values that cannot be read. They are not in the
	// tree, but neither absent nor unchanged: the store beneath answers reads of them.
	// Watches that may have seen one end, and do not start with a state that lacks it: a
	// client that took it for deleted might delete its dependents.
	unreadable []string
	// loading are path prefixes below which objects are not in the tree yet.
	loading []string
	// epoch counts how often the storage was restored to an earlier state. Revisions of
	// different epochs are not comparable.
	epoch int
	// replaced is the size of all objects replaced before, in bytes. A snapshot that is
	// held keeps what was replaced since.
	replaced int64
}

// get returns the object at a path; nil if there is none.
func (s *snapshot) get(path string) *resource.Object {
	it, _ := s.tree.Get(item{path: path})
	return it.obj
}

// same returns the object that is equal to that of a change; nil if there is none. s may be
// nil.
func (s *snapshot) same(ch resource.Change) *resource.Object {
	if s == nil {
		return nil
	}
	was := s.get(ch.Path)
	if was == nil || was.Revision != ch.Object.Revision || !bytes.Equal(was.Data, ch.Object.Data) {
		return nil
	}
	return was
}

// walk calls f with the items below prefix, in order, from the path prefix + start on,
// until f returns false.
func (s *snapshot) walk(prefix, start string, f func(it item) bool) {
	s.tree.Ascend(item{path: prefix + start}, func(it item) bool {
		return strings.HasPrefix(it.path, prefix) && f(it)
	})
}

// walkSelected is walk for a selector: some items are prepared at a time.
func (s *snapshot) walkSelected(prefix, start string, sel resource.Selector, f func(it item) bool) error {
	if sel.Convert == nil {
		s.walk(prefix, start, f)
		return nil
	}
	for more := true; more; {
		var items []item
		var objects []*resource.Object
		more = false
		s.walk(prefix, start, func(it item) bool {
			if len(items) == resource.PreparedTogether {
				start, more = it.path[len(prefix):], true
				return false
			}
			items, objects = append(items, it), append(objects, it.obj)
			return true
		})
		if err := sel.Prepare(objects); err != nil {
			return err
		}
		for _, it := range items {
			if !f(it) {
				return nil
			}
		}
	}
	return nil
}

// rank returns the number of paths of the tree before path.
func (s *snapshot) rank(path string) int {
	return sort.Search(s.tree.Len(), func(i int) bool {
		it, _ := s.tree.GetAt(i)
		return it.path >= path
	})
}

// count returns the number of items of walk.
func (s *snapshot) count(prefix, start string) int {
	// The prefix ends in a slash; the range ends at the next byte.
	end := prefix[:len(prefix)-1] + string(rune('/'+1))
	return s.rank(end) - s.rank(prefix+start)
}

// has reports whether all objects below a prefix are in the tree. s may be nil.
func (s *snapshot) has(prefix string) bool {
	return s != nil && !slices.ContainsFunc(s.loading, func(p string) bool { return strings.HasPrefix(p, prefix) || strings.HasPrefix(prefix, p) })
}

// hides reports whether the value at a path cannot be read.
func (s *snapshot) hides(path string) bool {
	_, found := slices.BinarySearch(s.unreadable, path)
	return found
}

// hidden returns the paths below prefix of values that cannot be read, the first
// resource.MaxUnreadable.
func (s *snapshot) hidden(prefix string) []string {
	start, _ := slices.BinarySearch(s.unreadable, prefix)
	end := start
	for end < len(s.unreadable) && end-start < resource.MaxUnreadable && strings.HasPrefix(s.unreadable[end], prefix) {
		end++
	}
	return s.unreadable[start:end]
}

// hidesBelow reports whether any value below prefix cannot be read.
func (s *snapshot) hidesBelow(prefix string) bool { return len(s.hidden(prefix)) > 0 }

// withPath returns the sorted paths with or without a path. Snapshots share the slice, so
// it is copied if it changes.
func withPath(paths []string, path string, present bool) []string {
	i, found := slices.BinarySearch(paths, path)
	switch {
	case present && !found:
		return slices.Insert(slices.Clone(paths), i, path)
	case !present && found:
		return slices.Delete(slices.Clone(paths), i, i+1)
	}
	return paths
}
