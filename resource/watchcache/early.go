package watchcache

import (
	"context"

	"portico/resource"
)

// early is a store for whoever cannot wait for the cache.
type early struct{ *store }

// Early returns a store like Store's whose lists and watches do not wait for the
// cache either: until it is ready they go to the store beneath. Such a watch
// ends (io.EOF) when the cache is ready, and can go on from there. It is for the
// few resources that a process must know before it can serve the others, for
// each of its watches is one more of the storage's meanwhile.
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
	if e.cache.Ready() {
		return e.store.Watch(ctx, opts)
	}
	ctx, cancel := context.WithCancel(ctx)
	w, err := e.beneath.Watch(ctx, opts)
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		select {
		case <-e.cache.ready:
			w.Close()
		case <-ctx.Done():
		}
		cancel()
	}()
	return &earlyWatcher{w, cancel}, nil
}

// earlyWatcher is a watch of the store beneath.
type earlyWatcher struct {
	resource.Watcher
	cancel context.CancelFunc
}

// Close ends the watch.
func (w *earlyWatcher) Close() {
	w.Watcher.Close()
	w.cancel()
}
