package etcd

import (
	"context"
	"io"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

const (
	// bookmarkEvery is how often etcd is asked for its progress on behalf of a
	// watcher that wants bookmarks.
	bookmarkEvery = time.Minute
	// watchBacklog is how many events may wait for a slow reader before its watch
	// ends, and watchBacklogBytes how large their objects may be together.
	watchBacklog      = 10000
	watchBacklogBytes = 16 << 20
)

// watcher is a watch directly on etcd. One goroutine takes what etcd sends,
// for etcd's client would otherwise keep it, without bound.
type watcher struct {
	store  *store
	sel    resource.Selector
	since  int64 // the revision that live events come after
	cancel context.CancelFunc
	// more is signalled when there is something new for Next.
	more chan struct{}
	// backlog is how many events may wait, and backlogBytes how many bytes.
	backlog, backlogBytes int
	// initial is the state that the watch begins with, a part at a time; nil when
	// all of it was returned. It belongs to Next.
	initial *initial

	mu    sync.Mutex
	queue []resource.Event
	size  int // of the objects in queue
	err   error
}

// initial is where the reading of the state is that a watch begins with.
type initial struct {
	opts resource.ListOptions
	part *resource.List // nil: it has to be read
}

// Watch starts a watch. It costs etcd a watch of its own; a server with many
// watchers puts a cache in front.
func (s *store) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	w := &watcher{store: s, sel: opts.Selector, more: make(chan struct{}, 1), backlog: watchBacklog, backlogBytes: watchBacklogBytes}
	since := opts.Since
	switch {
	case since > 0:
	case opts.InitialEvents:
		in := &initial{opts: resource.ListOptions{Namespace: opts.Namespace, Selector: opts.Selector, At: opts.At, Parts: true}}
		list, err := s.List(ctx, in.opts)
		if err != nil {
			return nil, err
		}
		in.part, w.initial = list, in
		since = list.Revision
	default:
		now, err := s.revision.current(ctx)
		if err != nil {
			return nil, err
		}
		since = now
	}
	w.since = since
	ctx, w.cancel = context.WithCancel(clientv3.WithRequireLeader(ctx))
	go w.run(ctx, s.span(opts.Namespace, opts.Selector), since, opts.Bookmarks)
	return w, nil
}

// Close ends the watch.
func (w *watcher) Close() {
	w.end(io.EOF)
	w.mu.Lock()
	w.queue, w.size = nil, 0
	w.mu.Unlock()
}

// end sets the error that ends the watch, if none did before.
func (w *watcher) end(err error) {
	w.cancel()
	w.mu.Lock()
	if w.err == nil {
		w.err = err
	}
	w.mu.Unlock()
	w.signal()
}

func (w *watcher) signal() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// Next returns the next events. What arrived before an error comes before it,
// unless the state that comes first is not complete yet.
func (w *watcher) Next(ctx context.Context) ([]resource.Event, error) {
	for {
		w.mu.Lock()
		queue, err := w.queue, w.err
		if w.initial == nil {
			w.queue, w.size = nil, 0
		}
		w.mu.Unlock()
		switch {
		case w.initial != nil && err == nil:
			if queue, err = w.begin(ctx); err != nil && ctx.Err() == nil {
				w.end(err)
			}
			return queue, err
		case w.initial != nil:
			return nil, err
		case len(queue) > 0:
			return queue, nil
		case err != nil:
			return nil, err
		}
		select {
		case <-w.more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin returns the next part of the state, which ends with Synced.
func (w *watcher) begin(ctx context.Context) ([]resource.Event, error) {
	in := w.initial
	if in.part == nil {
		part, err := w.store.List(ctx, in.opts)
		if apierrors.IsResourceExpired(err) {
			err = resource.ExpiredWatch(w.since, 0)
		}
		if err != nil {
			return nil, err
		}
		in.part = part
	}
	part := in.part
	events := make([]resource.Event, 0, len(part.Items)+1)
	for _, o := range part.Items {
		events = append(events, resource.Event{Type: resource.Added, Object: o, Revision: o.Revision})
	}
	in.part, in.opts.Continue = nil, part.Continue
	if part.Continue == "" {
		events = append(events, resource.Event{Type: resource.Synced, Revision: part.Revision})
		w.initial = nil
	}
	return events, nil
}

// run takes events from etcd until the watch ends.
func (w *watcher) run(ctx context.Context, span keyRange, since int64, bookmarks bool) {
	responses := w.store.etcd.Watch(ctx, span.start, clientv3.WithRange(span.end),
		clientv3.WithRev(since+1), clientv3.WithPrevKV())
	var tick <-chan time.Time
	if bookmarks {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	sent := since
	for {
		select {
		case <-tick:
			// Unanswered while etcd is busy: a bookmark is no promise.
			_ = w.store.etcd.RequestProgress(ctx)
		case resp, ok := <-responses:
			if !ok || ctx.Err() != nil {
				w.end(io.EOF)
				return
			}
			if err := w.take(ctx, resp, since, bookmarks, &sent); err != nil {
				w.end(err)
				return
			}
		}
	}
}

// take queues what a response holds.
func (w *watcher) take(ctx context.Context, resp clientv3.WatchResponse, since int64, bookmarks bool, sent *int64) error {
	switch err := resp.Err(); {
	case isCompacted(err):
		return resource.ExpiredWatch(since, 0)
	case err != nil:
		return asStatus(ctx, err)
	}
	var events []resource.Event
	for _, e := range resp.Events {
		event, ok, err := w.event(e)
		if err != nil {
			return err
		}
		if ok {
			events = append(events, event)
		}
		*sent = e.Kv.ModRevision
	}
	if resp.IsProgressNotify() && bookmarks && resp.Header.Revision > *sent {
		*sent = resp.Header.Revision
		events = append(events, resource.Event{Type: resource.Bookmark, Revision: *sent})
	}
	if len(events) == 0 {
		return nil
	}
	w.mu.Lock()
	slow := len(w.queue) > w.backlog || w.size > w.backlogBytes
	if !slow && w.err == nil {
		w.queue = append(w.queue, events...)
		w.size += sizeOf(events)
	}
	w.mu.Unlock()
	if slow {
		return resource.ExpiredWatch(since, 0)
	}
	w.signal()
	return nil
}

// sizeOf is the size of the objects of some events.
func sizeOf(events []resource.Event) (size int) {
	for _, e := range events {
		if e.Object != nil {
			size += len(e.Object.Data)
		}
	}
	return size
}

// event turns one event of etcd's into what the watcher sees of it.
func (w *watcher) event(e *clientv3.Event) (event resource.Event, ok bool, err error) {
	var prev, cur *resource.Object
	rev := e.Kv.ModRevision
	if e.Type == clientv3.EventTypePut {
		if cur, _, err = w.store.decode(e.Kv); err != nil {
			return event, false, err
		}
	}
	switch {
	case e.PrevKv != nil:
		if prev, _, err = w.store.decode(e.PrevKv); err != nil {
			return event, false, err
		}
	case e.IsCreate():
	case cur != nil && w.sel.Empty():
		// What was before does not matter: it was selected.
		return resource.Event{Type: resource.Modified, Object: cur, Revision: rev}, true, nil
	default:
		// The previous state was compacted, and without it the type of the event is
		// unknown.
		return event, false, resource.ExpiredWatch(rev, 0)
	}
	event, ok = w.sel.Event(prev, cur, rev)
	return event, ok, nil
}
