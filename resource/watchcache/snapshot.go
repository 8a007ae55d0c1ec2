package watchcache

import (
	"bytes"
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"portico/resource"
)

// item is one object in the tree.
type item struct {
	path string
	obj  *resource.Object
}

// tree holds objects by storage path.
type tree = btree.BTreeG[item]

func newTree() *tree {
	return btree.NewBTreeGOptions(func(a, b item) bool { return a.path < b.path }, btree.Options{NoLocks: true})
}

// snapshot is the state of everything at one revision. Immutable.
type snapshot struct {
	tree *tree
	rev  int64
	// unreadable are the paths, sorted, that hold what cannot be read.
	unreadable []string
	// epoch counts how often the storage had been set back: revisions of one say
	// nothing of another.
	epoch int
	// replaced is what all states that were replaced before came to, in bytes:
	// who holds on to the snapshot keeps what was replaced since.
	replaced int64
}

// get returns the object at a path, nil if there is none.
func (s *snapshot) get(path string) *resource.Object {
	it, _ := s.tree.Get(item{path: path})
	return it.obj
}

// same returns the object that a change would put in the place of its equal; nil
// if there is none. s may be nil.
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

// walk calls f with the items below prefix, in order, beginning with the first
// whose path is not below prefix + start, until f returns false.
func (s *snapshot) walk(prefix, start string, f func(it item) bool) {
	s.tree.Ascend(item{path: prefix + start}, func(it item) bool {
		return strings.HasPrefix(it.path, prefix) && f(it)
	})
}

// pick calls f with those of the paths that the snapshot has, in their order,
// until f returns false.
func (s *snapshot) pick(paths []string, f func(it item) bool) {
	for _, path := range paths {
		if o := s.get(path); o != nil && !f(item{path, o}) {
			return
		}
	}
}

// rank returns how many paths of the tree are below path.
func (s *snapshot) rank(path string) int {
	return sort.Search(s.tree.Len(), func(i int) bool {
		it, _ := s.tree.GetAt(i)
		return it.path >= path
	})
}

// count returns how many items walk would visit.
func (s *snapshot) count(prefix, start string) int {
	// A prefix ends in a slash; the next path outside of it ends in the next
	// byte.
	end := prefix[:len(prefix)-1] + string(rune('/'+1))
	return s.rank(end) - s.rank(prefix+start)
}
