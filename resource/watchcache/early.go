package watchcache

import (
	"context"
	"io"

	"portico/resource"
)

// early is the store of [Cache.Early].
type early struct{ *store }

// Early returns a store like Store's for a loop.Follow that must not wait for the cache:
// the few resources that a process needs before it can serve the others. Until the cache is
// ready, lists go to the store beneath, and a watch with initial events has these from
// there, sends no changes, and ends (io.EOF) when the cache is ready. The next watch resumes
// after it.
func (c *Cache) Early(info *resource.Info) resource.Store {
	return early{c.Store(info).(*store)}
}

// List returns a page of objects.
func (e early) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	if !e.cache.Ready() {
		return e.beneath.List(ctx, opts)
	}
	return e.store.List(ctx, opts)
}

// Watch starts a watch.
func (e early) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	if e.cache.Ready() || opts.Since > 0 || !opts.InitialEvents {
		return e.store.Watch(ctx, opts)
	}
	list, err := e.beneath.List(ctx, resource.ListOptions{Namespace: opts.Namespace, Selector: opts.Selector, At: opts.At})
	if err != nil {
		return nil, err
	}
	w := &earlyWatcher{ready: e.cache.ready}
	w.ctx, w.cancel = context.WithCancel(ctx)
	for _, o := range list.Items {
		w.initial = append(w.initial, resource.Event{Type: resource.Added, Object: o, Revision: o.Revision})
	}
	w.initial = append(w.initial, resource.Event{Type: resource.Synced, Revision: list.Revision})
	return w, nil
}

// earlyWatcher is a watch of a cache that is not ready.
type earlyWatcher struct {
	ctx     context.Context
	cancel  context.CancelFunc
	ready   <-chan struct{}
	initial []resource.Event // nil once returned
}

// Next returns the initial events, then io.EOF once the cache is ready.
func (w *earlyWatcher) Next(ctx context.Context) ([]resource.Event, error) {
	if w.initial != nil && w.ctx.Err() == nil {
		events := w.initial
		w.initial = nil
		return events, nil
	}
	select {
	case <-w.ready:
	case <-w.ctx.Done():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, io.EOF
}

// Close ends the watch.
func (w *earlyWatcher) Close() { w.cancel() }
