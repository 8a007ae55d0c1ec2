package watchcache

import (
	"sync"
	"time"

	"portico/resource"
)

// initial are the initial events of a watch, read in parts, so that a watch of many objects
// does not take memory for all of them at once.
type initial struct {
	// Guarded by initials.mu. now is nil once the snapshot was dropped.
	now  *snapshot
	used time.Duration // since the cache was made

	// Of the watcher only.
	prefix string
	from   string // relative key of the next object
	path   string // of the only object that can match; "" if there may be others
}

// initial returns the initial events of a watch.
func (s *store) initial(now *snapshot, opts resource.WatchOptions) *initial {
	in := &initial{now: now, used: s.cache.age(), prefix: s.narrow(opts.Namespace, opts.Selector)}
	in.path, _ = s.single(opts.Namespace, opts.Selector)
	return in
}

// hidden reports whether a part of the state cannot be read.
func (in *initial) hidden() bool {
	if in.path != "" {
		return in.now.hides(in.path)
	}
	return in.now.hidesBelow(in.prefix)
}

// read appends events to into, at most about batch and batchBytes of them; whole is true at
// the end of the state.
func (in *initial) read(now *snapshot, sel *selection, into []resource.Event) (events []resource.Event, whole bool, err error) {
	size := 0
	add := func(o *resource.Object) {
		if sel.has(o) {
			into = append(into, resource.Event{Type: resource.Added, Object: o, Revision: o.Revision})
			size += len(o.Data)
		}
	}
	if in.path != "" {
		if o := now.get(in.path); o != nil {
			err = sel.sel.Prepare([]*resource.Object{o})
			add(o)
		}
		return into, true, err
	}
	whole = true
	err = now.walkSelected(in.prefix, in.from, sel.sel, func(it item) bool {
		if len(into) >= batch || size >= batchBytes {
			in.from, whole = it.path[len(in.prefix):], false
			return false
		}
		add(it.obj)
		return true
	})
	return into, whole, err
}

// initials are the initial events in progress. The snapshot of a client that stops reading
// them would be held as long as the watch lasts, with every object replaced since. Safe for
// concurrent use.
type initials struct {
	mu  sync.Mutex
	all map[*initial]struct{}
}

func (is *initials) add(in *initial) {
	is.mu.Lock()
	defer is.mu.Unlock()
	is.all[in] = struct{}{}
}

// remove drops a snapshot; in may be nil.
func (is *initials) remove(in *initial) {
	if in == nil {
		return
	}
	is.mu.Lock()
	defer is.mu.Unlock()
	in.now = nil
	delete(is.all, in)
}

// use returns the snapshot for the next read; nil if it was dropped.
func (is *initials) use(in *initial, now time.Duration) *snapshot {
	is.mu.Lock()
	defer is.mu.Unlock()
	in.used = now
	return in.now
}

// tidy drops snapshots that were not read for initialAge or are older than oldest, a
// snapshot.replaced.
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
