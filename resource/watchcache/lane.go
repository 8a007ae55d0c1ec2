package watchcache

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"portico/resource"
)

// change is what happened to one object. prev is nil when it is new, cur when
// it is gone. It is shared by all watchers.
type change struct {
	rev       int64
	prev, cur *resource.Object

	last atomic.Pointer[resource.Object]
}

// leaving returns the last state of an object that is gone, or has left a
// selection, as of the change; made once for all watchers.
func (c *change) leaving() *resource.Object {
	if o := c.last.Load(); o != nil {
		return o
	}
	o := c.prev.WithRevision(c.rev)
	c.last.Store(o)
	return o
}

// event returns what the change means to a watcher with that selection; false
// if nothing.
func (c *change) event(namespace string, sel resource.Selector) (resource.Event, bool) {
	in := func(o *resource.Object) bool {
		return o != nil && (namespace == "" || o.Namespace == namespace) && sel.Matches(o)
	}
	switch was, is := in(c.prev), in(c.cur); {
	case is && was:
		return resource.Event{Type: resource.Modified, Object: c.cur, Revision: c.rev}, true
	case is:
		return resource.Event{Type: resource.Added, Object: c.cur, Revision: c.rev}, true
	case was:
		return resource.Event{Type: resource.Deleted, Object: c.leaving(), Revision: c.rev}, true
	}
	return resource.Event{}, false
}

// lane is the recent history of one resource. Changes have numbers; a watcher
// is the number of the change it wants next. Appending happens under the
// cache's mutex; everything is guarded by the lane's own.
type lane struct {
	mu     sync.RWMutex
	events []entry
	first  int64 // number of events[0]
	// oldest is the revision after which every change is kept.
	oldest int64
	news   chan struct{} // closed when there is more, or the end
	ended  bool
}

type entry struct {
	*change
	when time.Time
}

func newLane(rev int64) *lane { return &lane{oldest: rev, news: make(chan struct{})} }

// append adds a change and forgets those that are old enough.
func (l *lane) append(c *change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.events = append(l.events, entry{c, now})
	drop := 0
	for n := len(l.events); n-drop > minHistory; drop++ {
		if n-drop <= maxHistory && now.Sub(l.events[drop].when) < historyWindow {
			break
		}
		l.oldest = l.events[drop].rev
	}
	if drop > 0 {
		clear(l.events[:drop])
		l.events = l.events[drop:]
		l.first += int64(drop)
		// Let go of the array's unused front now and then.
		if cap(l.events) > 4*minHistory && len(l.events) < cap(l.events)/4 {
			l.events = slices.Clone(l.events)
		}
	}
}

// wake tells waiting watchers that there is more.
func (l *lane) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	close(l.news)
	l.news = make(chan struct{})
}

// end ends every watch of the lane.
func (l *lane) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.news)
	}
}

// next returns the number that the next change will have.
func (l *lane) next() int64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.first + int64(len(l.events))
}

// after returns the number of the first change after a revision; ok is false,
// with the oldest revision to ask for, when it is no longer kept.
func (l *lane) after(rev int64) (number, oldest int64, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if rev < l.oldest {
		return 0, l.oldest, false
	}
	i, _ := slices.BinarySearchFunc(l.events, rev+1, func(e entry, rev int64) int {
		switch {
		case e.rev < rev:
			return -1
		case e.rev > rev:
			return 1
		}
		return 0
	})
	// Several changes may share a revision: go to the first.
	for i > 0 && l.events[i-1].rev == rev+1 {
		i--
	}
	return l.first + int64(i), l.oldest, true
}

// read returns up to max changes from a number on, and the channel that tells
// of more. ok is false when the number is no longer kept.
func (l *lane) read(from int64, max int, into []*change) (out []*change, news <-chan struct{}, ended, ok bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if from < l.first {
		return into, nil, l.ended, false
	}
	for i := from - l.first; i < int64(len(l.events)) && max > 0; i++ {
		into = append(into, l.events[i].change)
		max--
	}
	return into, l.news, l.ended, true
}

// pathChange is a change and where.
type pathChange struct {
	path string
	*change
}

// difference returns what leads from one tree to another, in the order of
// revisions. What is gone went, as far as anybody can tell, at rev.
func difference(old, cur *btree.BTreeG[item], rev int64) []pathChange {
	var out []pathChange
	cur.Scan(func(it item) bool {
		prev, had := old.Get(item{path: it.path})
		if !had || prev.obj.Revision != it.obj.Revision {
			out = append(out, pathChange{it.path, &change{rev: it.obj.Revision, prev: prev.obj, cur: it.obj}})
		}
		return true
	})
	old.Scan(func(it item) bool {
		if _, has := cur.Get(item{path: it.path}); !has {
			out = append(out, pathChange{it.path, &change{rev: rev, prev: it.obj}})
		}
		return true
	})
	slices.SortStableFunc(out, func(a, b pathChange) int {
		switch {
		case a.rev < b.rev:
			return -1
		case a.rev > b.rev:
			return 1
		}
		return 0
	})
	return out
}
