package watchcache

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"portico/resource"
)

// change is what happened to one object. prev is nil when it is new, cur when
// it is gone. It is shared by all watchers.
type change struct {
	rev       int64
	prev, cur *resource.Object
	// part is what of it is told here; the rest is told by another change.
	part part
	// when the change was noted, since the cache was made.
	when time.Duration

	last atomic.Pointer[resource.Object]
}

// part is a part of what a change means to watchers.
type part uint8

const (
	_ part = iota
	// leaving is that the object is gone, or has left a selection.
	leaving
	// staying is everything else.
	staying
)

// object returns whichever state there is; both have the same key.
func (c *change) object() *resource.Object {
	if c.cur != nil {
		return c.cur
	}
	return c.prev
}

// cost is what keeping the change costs: the state that it replaced, and the
// copy of it that tells of a deletion. The state it made is kept by the tree, or
// is the replaced state of a later change.
func (c *change) cost() int64 {
	if c.cur == nil {
		return changeBytes + 2*sizeOf(c.prev)
	}
	return changeBytes + sizeOf(c.prev)
}

// leaving returns the last state of an object that is gone, or has left a
// selection, as of the change; made once for all watchers.
func (c *change) leaving() *resource.Object {
	if o := c.last.Load(); o != nil {
		return o
	}
	c.last.CompareAndSwap(nil, c.prev.WithRevision(c.rev))
	return c.last.Load()
}

// event returns what the change means to a watcher of that selection; false if
// nothing.
func (c *change) event(sel *selection) (resource.Event, bool) {
	switch was, is := sel.has(c.prev), sel.has(c.cur); {
	case is && c.part == leaving, !is && c.part == staying:
		return resource.Event{}, false
	case is && was:
		return resource.Event{Type: resource.Modified, Object: c.cur, Revision: c.rev}, true
	case is:
		return resource.Event{Type: resource.Added, Object: c.cur, Revision: c.rev}, true
	case was:
		return resource.Event{Type: resource.Deleted, Object: c.leaving(), Revision: c.rev}, true
	}
	return resource.Event{}, false
}

// selection is what a watcher wants to see of a event log.
type selection struct {
	namespace string // "" is all
	sel       resource.Selector
	all       bool // the selector matches everything
}

func (s *selection) has(o *resource.Object) bool {
	return o != nil && (s.namespace == "" || s.namespace == o.Namespace) && (s.all || s.sel.Matches(o))
}

// pathChange is a change and where.
type pathChange struct {
	path string
	*change
}

// difference returns what leads from one state to the next. ok is false when no
// history leads there: the storage was set back.
//
// A watcher may be cut off in the midst of it and go on elsewhere, from the
// revision that it was told last, where all of history is known. So whatever has
// left comes first, as of the old state's revision: when it left is not known
// here, and nobody would tell it to who goes on from a later one. What is there
// follows in the order of revisions: elsewhere, the changes that are still to
// come are told, too.
func difference(from, to *snapshot) (out []pathChange, ok bool) {
	if to.rev < from.rev {
		return nil, false
	}
	ok = true
	left := func(path string, prev, cur *resource.Object) {
		ok = ok && to.rev > from.rev
		if to.hides(path) {
			return // it may be there
		}
		out = append(out, pathChange{path, &change{rev: from.rev, prev: prev, cur: cur, part: leaving}})
	}
	came := func(path string, prev, cur *resource.Object) {
		rev := cur.Revision
		if from.hides(path) && rev <= from.rev && to.rev > from.rev {
			rev = to.rev // it was there, and is news to those who could not read it
		}
		ok = ok && rev > from.rev
		out = append(out, pathChange{path, &change{rev: rev, prev: prev, cur: cur, part: staying}})
	}
	old, cur := from.tree.Iter(), to.tree.Iter()
	defer old.Release()
	defer cur.Release()
	o, c := old.First(), cur.First()
	for o || c {
		switch {
		case !c || o && old.Item().path < cur.Item().path:
			left(old.Item().path, old.Item().obj, nil)
			o = old.Next()
		case !o || cur.Item().path < old.Item().path:
			came(cur.Item().path, nil, cur.Item().obj)
			c = cur.Next()
		default:
			path, was, is := cur.Item().path, old.Item().obj, cur.Item().obj
			switch {
			case was.Revision == is.Revision:
			case was.UID != is.UID:
				left(path, was, nil)
				came(path, nil, is)
			default:
				left(path, was, is)
				came(path, was, is)
			}
			o, c = old.Next(), cur.Next()
		}
	}
	slices.SortStableFunc(out, func(a, b pathChange) int { return cmp.Compare(a.rev, b.rev) })
	return out, ok
}
