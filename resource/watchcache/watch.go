package watchcache

import (
	"context"
	"time"

	"portico/resource"
)

// Watch starts a watch. A Since that the cache has not come to yet is waited
// for like the revision of a read: a client whose revision lies in the future
// (of a storage that was set back) must learn of it.
func (s *store) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	w := &watcher{
		cache:     s.cache,
		source:    s.events,
		scope:     s.scope(opts),
		selection: selection{namespace: opts.Namespace, sel: opts.Selector, all: opts.Selector.Empty()},
		bookmarks: opts.Bookmarks,
		woken:     make(chan struct{}, 1),
		done:      make(chan struct{}),
	}
	if !s.info.Namespaced {
		w.selection.namespace = ""
	}
	if deadline, ok := ctx.Deadline(); ok {
		w.deadline = deadline
	}
	if err := s.start(ctx, w, opts); err != nil {
		return nil, err
	}
	w.due = w.nextBookmark(time.Now())
	s.cache.watching.Add(1)
	s.events.mu.Lock() // the context may have ended: then Close runs at once
	w.stop = context.AfterFunc(ctx, w.Close)
	s.events.mu.Unlock()
	return w, nil
}

// scope returns what a watch has to be woken for.
func (s *store) scope(opts resource.WatchOptions) scope {
	name, _ := opts.Selector.Name()
	if !s.info.Namespaced {
		return scope{name: name}
	}
	return scope{opts.Namespace, name}
}

// start puts a watcher where it begins.
func (s *store) start(ctx context.Context, w *watcher, opts resource.WatchOptions) error {
	at := opts.At
	switch {
	case opts.Since > 0:
		at = resource.At{Freshness: resource.NotOlderThan, Revision: opts.Since}
	case at.Freshness == resource.Exact:
		at.Freshness = resource.NotOlderThan // Exact is for List only
	}
	now, err := s.fresh(ctx, at)
	if err != nil {
		return err
	}
	if now == nil {
		// Unlike a read, a watch has no store beneath to fall back on: that
		// would be one more watch of etcd for each watch here.
		return resource.Unavailable("storage does not answer, the cache may be out of date", 1)
	}
	if opts.Since > 0 {
		w.sent = opts.Since
		return s.events.enterAfter(w, opts.Since)
	}
	// Under the mutex no change comes between the state and the position.
	s.cache.mu.Lock()
	now = s.cache.now.Load()
	s.events.enter(w)
	s.cache.mu.Unlock()
	w.sent = now.rev
	if opts.InitialEvents {
		in := s.initial(now, opts)
		if in.hidden() {
			return s.refuseUnreadable(ctx, opts)
		}
		s.cache.initials.add(in)
		w.began, w.initial = in, in
	}
	return nil
}
