package watchcache

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"portico/resource"
)

// change is a change of one object, shared by all watchers. prev is nil for a new object,
// cur for a deleted one.
type change struct {
	rev       int64
	prev, cur *resource.Object
	// part restricts the events of the change; another change has the others.
	part part
	// when is the time at which the change was added, since the cache was made.
	when time.Duration

	deleted atomic.Pointer[resource.Object] // of deletedObject
}

// part restricts the events of a change.
type part uint8

const (
	_ part = iota
	// onlyDeleted: only Deleted events.
	onlyDeleted
	// notDeleted: only Added and Modified events.
	notDeleted
)

// object returns cur or prev, which have the same key.
func (c *change) object() *resource.Object {
	if c.cur != nil {
		return c.cur
	}
	return c.prev
}

// bytes returns the memory that the change takes: that of the replaced object, and of its
// copy in a Deleted event. The new object belongs to the tree or to a later change.
func (c *change) bytes() int64 {
	if c.cur == nil {
		return changeBytes + 2*sizeOf(c.prev)
	}
	return changeBytes + sizeOf(c.prev)
}

// deletedObject returns the object of a Deleted event: the last state with the revision of
// the change, made once for all watchers.
func (c *change) deletedObject() *resource.Object {
	if o := c.deleted.Load(); o != nil {
		return o
	}
	c.deleted.CompareAndSwap(nil, c.prev.WithRevision(c.rev))
	return c.deleted.Load()
}

// event returns the event of the change in a selection; false if there is none.
func (c *change) event(sel *selection) (resource.Event, bool) {
	switch was, is := sel.has(c.prev), sel.has(c.cur); {
	case is && c.part == onlyDeleted, !is && c.part == notDeleted:
		return resource.Event{}, false
	case is && was:
		return resource.Event{Type: resource.Modified, Object: c.cur, Revision: c.rev}, true
	case is:
		return resource.Event{Type: resource.Added, Object: c.cur, Revision: c.rev}, true
	case was:
		return resource.Event{Type: resource.Deleted, Object: c.deletedObject(), Revision: c.rev}, true
	}
	return resource.Event{}, false
}

// selection is the part of an event log that a watcher receives.
type selection struct {
	namespace string // "" is all
	sel       resource.Selector
	all       bool // the selector matches everything
}

func (s *selection) has(o *resource.Object) bool {
	return s.inNamespace(o) && (s.all || s.sel.Matches(o))
}

func (s *selection) inNamespace(o *resource.Object) bool {
	return o != nil && (s.namespace == "" || s.namespace == o.Namespace)
}

// prepare prepares the objects of changes for has.
func (s *selection) prepare(changes []*change) error {
	if s.sel.Convert == nil {
		return nil
	}
	var objects []*resource.Object
	for _, c := range changes {
		for _, o := range []*resource.Object{c.prev, c.cur} {
			if s.inNamespace(o) {
				objects = append(objects, o)
			}
		}
	}
	return s.sel.Prepare(objects)
}

// pathChange is a change with the storage path of its object.
type pathChange struct {
	path string
	*change
}

// difference returns the changes that lead from one state to a later one. ok is false if no
// history leads there: the storage was restored to an earlier state.
//
// A watcher may end within the changes and resume in another process, at the revision that
// it received last, where all of history is known. So deletions come first, with the
// revision of the old state: their revisions are not known, and a watcher that resumed at a
// later one would not receive them. The others follow in the order of revisions.
func difference(from, to *snapshot) (out []pathChange, ok bool) {
	if to.rev < from.rev {
		return nil, false
	}
	ok = true
	remove := func(path string, prev, cur *resource.Object) {
		ok = ok && to.rev > from.rev
		if to.hides(path) {
			return // it may still exist
		}
		out = append(out, pathChange{path, &change{rev: from.rev, prev: prev, cur: cur, part: onlyDeleted}})
	}
	set := func(path string, prev, cur *resource.Object) {
		rev := cur.Revision
		if from.hides(path) && rev <= from.rev { // it existed but could not be read
			if to.rev == from.rev {
				return // no watch begins before this revision
			}
			rev = to.rev
		}
		ok = ok && rev > from.rev
		out = append(out, pathChange{path, &change{rev: rev, prev: prev, cur: cur, part: notDeleted}})
	}
	old, cur := from.tree.Iter(), to.tree.Iter()
	defer old.Release()
	defer cur.Release()
	o, c := old.First(), cur.First()
	for o || c {
		switch {
		case !c || o && old.Item().path < cur.Item().path:
			remove(old.Item().path, old.Item().obj, nil)
			o = old.Next()
		case !o || cur.Item().path < old.Item().path:
			set(cur.Item().path, nil, cur.Item().obj)
			c = cur.Next()
		default:
			path, was, is := cur.Item().path, old.Item().obj, cur.Item().obj
			switch {
			case was.Revision == is.Revision:
			case was.UID != is.UID:
				remove(path, was, nil)
				set(path, nil, is)
			default:
				remove(path, was, is)
				set(path, was, is)
			}
			o, c = old.Next(), cur.Next()
		}
	}
	slices.SortStableFunc(out, func(a, b pathChange) int { return cmp.Compare(a.rev, b.rev) })
	return out, ok
}
