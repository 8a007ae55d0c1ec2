package watchcache

import (
	"context"
	"io"
	"sync"
	"time"

	"portico/resource"
)

// batch is how many changes a watcher looks at, at a time.
const batch = 256

// watcher is a position in a lane.
type watcher struct {
	cache *Cache
	lane  *lane
	opts  resource.WatchOptions
	ctx   context.Context

	close  context.CancelFunc
	closed sync.Once

	// Of Next only.
	initial  []resource.Event // still to be sent before anything else
	number   int64            // of the next change
	err      error            // once it ended
	changes  []*change
	events   []resource.Event
	bookmark time.Time // when the next one is due
}

// Next returns the next events. See resource.Watcher.
func (w *watcher) Next(ctx context.Context) ([]resource.Event, error) {
	for {
		if w.err != nil {
			return nil, w.err
		}
		if len(w.initial) > 0 {
			n := min(batch, len(w.initial))
			out := w.initial[:n]
			w.initial = w.initial[n:]
			return out, nil
		}
		news, ended := w.pull()
		switch {
		case w.err != nil:
			return nil, w.err
		case len(w.events) > 0:
			return w.events, nil
		case news == nil:
			continue // more is there, but nothing of it was selected
		case ended:
			w.err = io.EOF
			continue
		}
		if w.opts.Bookmarks && !time.Now().Before(w.bookmark) {
			rev, ok := w.cache.caughtUp(w.lane, w.number)
			if !ok {
				continue
			}
			w.bookmark = time.Now().Add(w.cache.cfg.BookmarkInterval)
			w.events = append(w.events[:0], resource.Event{Type: resource.Bookmark, Revision: rev})
			return w.events, nil
		}
		if err := w.wait(ctx, news); err != nil {
			return nil, err
		}
	}
}

// pull reads the next changes and keeps what is selected in w.events. news is
// nil while more changes are at hand.
func (w *watcher) pull() (news <-chan struct{}, ended bool) {
	var ok bool
	w.changes, news, ended, ok = w.lane.read(w.number, batch, w.changes[:0])
	if !ok {
		w.err = resource.ExpiredWatch(w.opts.Since, 0)
		return nil, ended
	}
	w.number += int64(len(w.changes))
	w.events = w.events[:0]
	for _, c := range w.changes {
		if e, ok := c.event(w.opts.Namespace, w.opts.Selector); ok {
			w.events = append(w.events, e)
		}
	}
	if len(w.changes) == batch {
		return nil, ended
	}
	return news, ended
}

// wait blocks until there is something to look at.
func (w *watcher) wait(ctx context.Context, news <-chan struct{}) error {
	var due <-chan time.Time
	if w.opts.Bookmarks {
		timer := time.NewTimer(time.Until(w.bookmark))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-news:
	case <-due:
	case <-w.ctx.Done():
		w.err = io.EOF
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Close ends the watch. It may be called twice.
func (w *watcher) Close() { w.closed.Do(w.close) }
