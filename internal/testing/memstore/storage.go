// Package memstore is a storage in memory: Stores and a Feed over one sequence of
// revisions, with history.
//
// It is simple rather than fast: the reference of the conformance suite
// (internal/testing/storetest), and the storage of tests without etcd.
//
// Decisions:
//
//   - Every revision keeps its own copy of an ordered tree. The copies share
//     what did not change, so an exact read of the past is an ordinary read.
//   - One mutex, never held while a caller's function runs.
//   - Objects are kept as they are; they are immutable.
//
// Runs in: tests.
package memstore

import (
	"sync"
	"time"

	"github.com/tidwall/btree"

	"portico/resource"
)

// keep is the number of revisions that are kept.
const keep = 10000

// Storage stores the objects of any number of resources. It is safe for concurrent use.
type Storage struct {
	mu sync.Mutex
	// history has the tree of each kept revision, ascending; the last one is current.
	history []snapshot
	// log holds the changes that made history[1:].
	log []change
	// changed is closed and replaced when waiting calls have to look again.
	changed chan struct{}
	// asked counts the requests for progress.
	asked int64
}

// snapshot is the storage at one revision.
type snapshot struct {
	rev  int64
	tree *btree.BTreeG[*entry]
}

// entry is one object at one storage path. It is immutable but for expiry,
// which the storage's mutex guards.
type entry struct {
	path   string
	object *resource.Object
	expiry *time.Timer
}

// change is the change at one revision. prev is nil for a creation, cur for a deletion.
type change struct {
	rev       int64
	path      string
	prev, cur *resource.Object
}

// New returns an empty storage at revision 1.
func New() *Storage {
	tree := btree.NewBTreeGOptions(func(a, b *entry) bool { return a.path < b.path }, btree.Options{NoLocks: true})
	return &Storage{
		history: []snapshot{{rev: 1, tree: tree}},
		changed: make(chan struct{}),
	}
}

// Revision returns the current revision.
func (s *Storage) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last().rev
}

// Compact removes the history before rev, as etcd does: exact reads and watches from before
// it fail. A later revision than the current one means the current one.
func (s *Storage) Compact(rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(min(rev, s.last().rev))
	s.wake()
}

// last returns the current state. The caller holds mu, here and below.
func (s *Storage) last() snapshot { return s.history[len(s.history)-1] }

// oldest returns the first revision that is kept.
func (s *Storage) oldest() int64 { return s.history[0].rev }

// at returns the state at a kept revision.
func (s *Storage) at(rev int64) snapshot { return s.history[rev-s.oldest()] }

// since returns the changes after rev, which must be kept.
func (s *Storage) since(rev int64) []change {
	if rev >= s.last().rev {
		return nil
	}
	return s.log[rev-s.oldest():]
}

func (s *Storage) forget(rev int64) {
	if n := rev - s.oldest(); n > 0 {
		s.history, s.log = s.history[n:], s.log[n:]
	}
}

func (s *Storage) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Storage) find(path string) *entry {
	e, _ := s.last().tree.Get(&entry{path: path})
	return e
}

// put commits the next state of a path, nil for its deletion, and returns the object with
// the new revision.
func (s *Storage) put(path string, obj *resource.Object, ttl time.Duration) *resource.Object {
	old := s.find(path)
	c := change{rev: s.last().rev + 1, path: path}
	if old != nil {
		c.prev = old.object
		if old.expiry != nil {
			old.expiry.Stop()
		}
	}
	next := s.last().tree.Copy()
	if obj == nil {
		next.Delete(old)
	} else {
		c.cur = obj.WithRevision(c.rev)
		e := &entry{path: path, object: c.cur}
		if ttl > 0 {
			e.expiry = time.AfterFunc(ttl, func() { s.expire(e) })
		}
		next.Set(e)
	}
	s.history = append(s.history, snapshot{rev: c.rev, tree: next})
	s.log = append(s.log, c)
	s.forget(c.rev - keep)
	s.wake()
	return c.cur
}

// expire deletes an entry at the end of its TTL, unless it was replaced.
func (s *Storage) expire(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.find(e.path) == e {
		s.put(e.path, nil, 0)
	}
}
