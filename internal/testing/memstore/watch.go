package memstore

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"portico/resource"
)

// bookmarkEvery is the interval of bookmarks.
const bookmarkEvery = time.Minute

// watcher reads the storage's log from a position on.
type watcher struct {
	store *store
	opts  resource.WatchOptions
	// path is the watched range.
	path string
	// pos is the revision up to which everything was delivered.
	pos int64
	// initial are events to deliver first.
	initial []resource.Event
	ctx     context.Context
	cancel  context.CancelFunc

	mu  sync.Mutex
	err error
}

// Watch starts a watch.
func (s *store) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	w := &watcher{store: s, opts: opts, path: s.info.RangePath(opts.Namespace), pos: opts.Since}
	switch {
	case opts.Since > 0:
		s.mu.Lock()
		oldest := s.oldest()
		s.mu.Unlock()
		if opts.Since < oldest {
			return nil, resource.ExpiredWatch(opts.Since, oldest)
		}
	case opts.InitialEvents:
		list, err := s.List(ctx, resource.ListOptions{Namespace: opts.Namespace, Selector: opts.Selector, At: opts.At})
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			w.initial = append(w.initial, resource.Event{Type: resource.Added, Object: o, Revision: o.Revision})
		}
		w.initial = append(w.initial, resource.Event{Type: resource.Synced, Revision: list.Revision})
		w.pos = list.Revision
	default:
		w.pos = s.Revision()
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w, nil
}

// Close ends the watch.
func (w *watcher) Close() { w.cancel() }

// Next returns the next events.
func (w *watcher) Next(ctx context.Context) ([]resource.Event, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var bookmark <-chan time.Time
	if w.opts.Bookmarks {
		timer := time.NewTimer(bookmarkEvery)
		defer timer.Stop()
		bookmark = timer.C
	}
	for w.err == nil {
		if w.ctx.Err() != nil {
			w.err = io.EOF
			break
		}
		if events := w.initial; events != nil {
			w.initial = nil
			return events, nil
		}
		events, changed, err := w.collect()
		if err != nil {
			w.err = err
			break
		}
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-changed:
		case <-bookmark:
			return []resource.Event{{Type: resource.Bookmark, Revision: w.pos}}, nil
		case <-w.ctx.Done():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, w.err
}

// collect returns the events since the last call. The channel is closed when there are
// more.
func (w *watcher) collect() ([]resource.Event, <-chan struct{}, error) {
	s := w.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.pos < s.oldest() {
		return nil, nil, resource.ExpiredWatch(w.pos, s.oldest())
	}
	var events []resource.Event
	for _, c := range s.since(w.pos) {
		w.pos = c.rev
		if !strings.HasPrefix(c.path, w.path) {
			continue
		}
		if e, ok := w.opts.Selector.Event(c.prev, c.cur, c.rev); ok {
			events = append(events, e)
		}
	}
	return events, s.changed, nil
}
