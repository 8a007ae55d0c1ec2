package watchcache

import (
	"sync"
	"time"

	"portico/resource"
)

// initial is the state that a watch begins with, read bit by bit, so that a
// watch of many objects does not need memory for all of them at once.
type initial struct {
	// Guarded by initials.mu. now is nil once the state was let go of.
	now  *snapshot
	used time.Duration // since the cache was made

	// Of the watcher only.
	prefix string
	from   string // relative key to go on from
	single string // the only path to look at, if one is true
	one    bool
}

// read appends events to into, at most about batch and batchBytes of them; whole
// is true at the end of the state.
func (in *initial) read(now *snapshot, sel *selection, into []resource.Event) (events []resource.Event, whole bool) {
	size := 0
	add := func(o *resource.Object) {
		if sel.has(o) {
			into = append(into, resource.Event{Type: resource.Added, Object: o, Revision: o.Revision})
			size += len(o.Data)
		}
	}
	if in.one {
		add(now.get(in.single))
		return into, true
	}
	whole = true
	now.walk(in.prefix, in.from, func(it item) bool {
		if len(into) >= batch || size >= batchBytes {
			in.from, whole = it.path[len(in.prefix):], false
			return false
		}
		add(it.obj)
		return true
	})
	return into, whole
}

// initials are the states that watches are beginning with. A client that stops
// reading in the middle of one would have it kept for as long as the watch
// lasts, with every object that was replaced since.
type initials struct {
	mu  sync.Mutex
	all map[*initial]struct{}
}

func (is *initials) add(in *initial) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.all[in] = struct{}{}
}

// remove lets go of a state; in may be nil.
func (is *initials) remove(in *initial) {
	if in == nil {
		return
	}
	is.mu.Lock()
	defer is.mu.Unlock()
	in.now = nil
	delete(is.all, in)
}

// use returns the state for the next reading; nil if it is no longer kept.
func (is *initials) use(in *initial, now time.Duration) *snapshot {
	is.mu.Lock()
	defer is.mu.Unlock()
	in.used = now
	return in.now
}

// tidy lets go of states that nobody has read on in for long.
func (is *initials) tidy(now time.Duration) {
	is.mu.Lock()
	defer is.mu.Unlock()
	for in := range is.all {
		if now-in.used > initialAge {
			in.now = nil
			delete(is.all, in)
		}
	}
}
