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

// watcher is a position in a event log.
type watcher struct {
	cache     *Cache
	source    *eventLog
	scope     scope
	selection selection
	bookmarks bool
	deadline  time.Time // of the watch; zero is none
	began     *initial  // the state it began with; nil if none
	woken     chan struct{}
	done      chan struct{} // closed by Close
	once      sync.Once

	// Guarded by event log.mu. A parked watcher has no position: it has seen
	// everything that concerns it.
	number int64 // of the next change
	breaks int
	parked bool
	slot   int // where it is parked
	closed bool
	stop   func() bool // lets go of the watch's context

	// Of Next only.
	initial *initial // still to be sent before anything else
	err     error    // once it ended
	changes []*change
	events  []resource.Event
	sent    int64 // the newest revision the reader knows of
	timer   *time.Timer
	due     time.Time // of the next bookmark
}

// Next returns the next events. See resource.Watcher.
func (w *watcher) Next(ctx context.Context) ([]resource.Event, error) {
	clear(w.events) // what the reader is done with must not be held on to
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
		// Everything up to here is in the event log: see the package's order.
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

// readInitial puts the next part of the state into events.
func (w *watcher) readInitial() {
	now := w.cache.initials.use(w.initial, w.cache.age())
	if now == nil {
		w.source.mu.Lock()
		w.source.slow++
		w.source.mu.Unlock()
		w.end(apierrors.NewResourceExpired("The watch was too slow, the state that it began with is no longer kept: list again."))
		return
	}
	var whole bool
	w.events, whole = w.initial.read(now, &w.selection, w.events)
	if whole {
		w.events = append(w.events, resource.Event{Type: resource.Synced, Revision: now.rev})
		w.cache.initials.remove(w.initial)
		w.initial = nil
	}
}

// readLog puts what the next changes mean into events. idle is true when
// there were no changes, and the watcher is parked.
func (w *watcher) readLog() (idle bool) {
	changes, err := w.source.read(w, w.changes[:0])
	switch {
	case errors.Is(err, errBreak):
		w.end(apierrors.NewResourceExpired("The storage was set back to an earlier state: list again."))
		return false
	case errors.Is(err, errUnreadable):
		w.end(apierrors.NewResourceExpired("A stored object cannot be read any more: list again."))
		return false
	case err != nil:
		w.end(apierrors.NewResourceExpired("The watch was too slow, events it has not read are no longer kept: list again."))
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
	// A watcher may sleep for long: it keeps no more than it needs.
	if cap(w.changes) > 16 {
		w.changes = nil
	}
	if cap(w.events) > 16 {
		w.events = nil
	}
	return true
}

// bookmark makes one if it is due. Everything up to rev has been read.
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

// nextBookmark returns when the next bookmark is due. Watches that began
// together do not have theirs together; a watch with a deadline has one shortly
// before it, so that its reader can go on from there.
func (w *watcher) nextBookmark(now time.Time) time.Time {
	every := w.cache.cfg.BookmarkInterval
	next := now.Add(every - time.Duration(rand.Int64N(int64(every)/8+1)))
	if last := w.deadline.Add(-lastBookmark); !w.deadline.IsZero() && now.Before(last) && last.Before(next) {
		return last
	}
	return next
}

// wait blocks until there is something to look at. Its error is ctx's.
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

// end makes err the answer to every further Next.
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
