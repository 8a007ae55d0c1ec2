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
	store  *store
	prefix string
	from   string // relative key to go on from
	// paths are the only ones to look at, from next on, if few is true.
	paths []string
	next  int
	few   bool
	// one says that there is but one path in question.
	one bool
	// inVain is how many objects were not selected.
	inVain int
}

// initial prepares the events that make up the state.
func (s *store) initial(now *snapshot, opts resource.WatchOptions) *initial {
	in := &initial{now: now, used: s.cache.age(), store: s, prefix: s.narrow(opts.Namespace, opts.Selector)}
	if path, one := s.single(opts.Namespace, opts.Selector); one {
		in.paths, in.few, in.one = []string{path}, true, true
	} else if !opts.Selector.Empty() {
		in.paths, in.few = s.candidates(now, opts.Selector, in.prefix, in.prefix)
	}
	return in
}

// hidden reports whether a part of the state cannot be read.
func (in *initial) hidden() bool {
	if in.one {
		return in.now.hides(in.paths[0])
	}
	return in.now.hidesBelow(in.prefix)
}

// read appends events to into, at most about batch and batchBytes of them; whole
// is true at the end of the state.
func (in *initial) read(now *snapshot, sel *selection, into []resource.Event) (events []resource.Event, whole bool) {
	size := 0
	full := func() bool { return len(into) >= batch || size >= batchBytes }
	add := func(o *resource.Object) {
		if !sel.has(o) {
			in.inVain++
			return
		}
		into = append(into, resource.Event{Type: resource.Added, Object: o, Revision: o.Revision})
		size += len(o.Data)
	}
	if in.few {
		for ; in.next < len(in.paths) && !full(); in.next++ {
			add(now.get(in.paths[in.next]))
		}
		return into, in.next == len(in.paths)
	}
	whole = true
	now.walk(in.prefix, in.from, func(it item) bool {
		if full() {
			in.from, whole = it.path[len(in.prefix):], false
			return false
		}
		add(it.obj)
		return true
	})
	if whole && in.inVain >= worthIndexing {
		in.store.scanned(now, sel.sel, in.inVain)
	}
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

// tidy lets go of states that nobody has read on in for long, or that are older
// than oldest, which is a snapshot.replaced.
func (is *initials) tidy(now time.Duration, oldest int64) {
	is.mu.Lock()
	defer is.mu.Unlock()
	for in := range is.all {
		if now-in.used > initialAge || in.now.replaced < oldest {
			in.now = nil
			delete(is.all, in)
		}
	}
}
