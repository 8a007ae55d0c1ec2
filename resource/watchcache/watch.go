package watchcache

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// Watch starts a watch. It waits for a Since that the cache has not reached, like a read of
// that revision: a client with a revision from the future (the storage was restored) gets an
// error.
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
	s.events.mu.Lock() // if the context has ended, Close runs at once
	w.stop = context.AfterFunc(ctx, w.Close)
	s.events.mu.Unlock()
	return w, nil
}

// scope returns the scope of the changes that wake a watch.
func (s *store) scope(opts resource.WatchOptions) scope {
	name, _ := opts.Selector.Name()
	if !s.info.Namespaced {
		return scope{name: name}
	}
	return scope{opts.Namespace, name}
}

// start sets the position of a watcher and its initial events.
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
		// The store beneath has no watches.
		return resource.Unavailable("storage does not answer, the cache may be out of date", 1)
	}
	if opts.Since > 0 {
		w.sent = opts.Since
		return s.events.enterAfter(w, opts.Since)
	}
	// With the mutex held, no change is between the state and the position.
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

// watcher is a position in an event log.
type watcher struct {
	cache     *Cache
	source    *eventLog
	scope     scope
	selection selection
	bookmarks bool
	deadline  time.Time // of the watch; zero means none
	began     *initial  // the initial events; nil if there were none
	woken     chan struct{}
	done      chan struct{} // closed by Close
	once      sync.Once

	// Guarded by eventLog.mu. A parked watcher has no position: it has read everything in
	// its scope.
	number int64 // of the next change
	breaks int
	parked bool
	slot   int // index in eventLog.parked
	closed bool
	stop   func() bool // detaches the watcher from the context of its watch

	// Of Next only.
	initial *initial // nil once all were returned
	err     error    // once the watch has ended
	changes []*change
	events  []resource.Event
	sent    int64 // the newest revision that was returned
	timer   *time.Timer
	due     time.Time // of the next bookmark
}

// Next returns the next events. See resource.Watcher.
func (w *watcher) Next(ctx context.Context) ([]resource.Event, error) {
	clear(w.events) // drops the objects of the last call
	w.events = w.events[:0]
	for {
		select {
		case <-w.done:
			w.end(io.EOF)
		case <-w.cache.ended:
			w.end(io.EOF)
		default:
		}
		if w.err != nil {
			return nil, w.err
		}
		if w.initial != nil {
			w.readInitial()
			return w.events, w.err
		}
		// Every change up to here is in the event log (see the package's order).
		rev := w.cache.Revision()
		idle := w.readLog()
		switch {
		case w.err != nil:
			return nil, w.err
		case len(w.events) > 0:
			return w.events, nil
		case !idle:
			continue
		}
		if w.bookmark(rev) {
			return w.events, nil
		}
		if err := w.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// readInitial adds the next initial events to events.
func (w *watcher) readInitial() {
	now := w.cache.initials.use(w.initial, w.cache.age())
	if now == nil {
		w.source.mu.Lock()
		w.source.slow++
		w.source.mu.Unlock()
		w.end(apierrors.NewResourceExpired("The watch was too slow, the state that it began with is no longer kept: list again."))
		return
	}
	events, whole, err := w.initial.read(now, &w.selection, w.events)
	if err != nil {
		w.end(err)
		return
	}
	if w.events = events; whole {
		w.events = append(w.events, resource.Event{Type: resource.Synced, Revision: now.rev})
		w.cache.initials.remove(w.initial)
		w.initial = nil
	}
}

// readLog adds the events of the next changes to events. idle is true if there were no
// changes and the watcher is parked.
func (w *watcher) readLog() (idle bool) {
	changes, err := w.source.read(w, w.changes[:0])
	switch {
	case errors.Is(err, errForgotten):
		w.end(io.EOF)
		return false
	case errors.Is(err, errBreak):
		w.end(apierrors.NewResourceExpired("The storage was restored to an earlier state: list again."))
		return false
	case errors.Is(err, errUnreadable):
		w.end(apierrors.NewResourceExpired("A stored object can no longer be read: list again."))
		return false
	case err != nil:
		w.end(apierrors.NewResourceExpired("The watch was too slow, events it has not read are no longer kept: list again."))
		return false
	}
	if err := w.selection.prepare(changes); err != nil {
		w.end(err)
		return false
	}
	for _, c := range changes {
		if e, ok := c.event(&w.selection); ok {
			w.events = append(w.events, e)
			w.sent = c.rev
		}
	}
	clear(changes)
	w.changes = changes
	if len(changes) > 0 {
		return false
	}
	// A watcher may be parked for long: large buffers are dropped.
	if cap(w.changes) > 16 {
		w.changes = nil
	}
	if cap(w.events) > 16 {
		w.events = nil
	}
	return true
}

// bookmark adds a bookmark to events if one is due. Everything up to rev has been read.
func (w *watcher) bookmark(rev int64) bool {
	if !w.bookmarks || rev < w.sent {
		return false
	}
	now := time.Now()
	if now.Before(w.due) {
		return false
	}
	w.due = w.nextBookmark(now)
	w.sent = rev
	w.events = append(w.events, resource.Event{Type: resource.Bookmark, Revision: rev})
	return true
}

// nextBookmark returns when the next bookmark is due. The times are random, so that watches
// that began together do not have them together. A watch with a deadline has one shortly
// before it, so that its client can resume there.
func (w *watcher) nextBookmark(now time.Time) time.Time {
	every := w.cache.cfg.BookmarkInterval
	next := now.Add(every - time.Duration(rand.Int64N(int64(every)/8+1)))
	if last := w.deadline.Add(-lastBookmark); !w.deadline.IsZero() && now.Before(last) && last.Before(next) {
		return last
	}
	return next
}

// wait blocks until the watcher is woken, a bookmark is due or the watch ends. Its error is
// ctx's.
func (w *watcher) wait(ctx context.Context) error {
	var due <-chan time.Time
	if w.bookmarks {
		if d := time.Until(w.due); w.timer == nil {
			w.timer = time.NewTimer(d)
		} else {
			w.timer.Reset(d)
		}
		due = w.timer.C
	}
	select {
	case <-w.woken:
	case <-due:
	case <-w.done:
	case <-w.cache.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// end makes err the error of all calls of Next.
func (w *watcher) end(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	w.initial, w.changes, w.events = nil, nil, nil
	if w.timer != nil {
		w.timer.Stop()
	}
	w.Close()
}

// Close ends the watch. It may be called twice.
func (w *watcher) Close() {
	w.once.Do(func() {
		close(w.done)
		w.source.leave(w)
		w.cache.initials.remove(w.began)
		w.cache.watching.Add(-1)
	})
}
