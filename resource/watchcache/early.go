package watchcache

import (
	"context"
	"io"

	"portico/resource"
)

// early is the store of [Cache.Early].
type early struct{ *store }

// Early returns a store like Store's for a loop.Follow that must not wait for the cache:
// the few resources that a process needs before it can serve the others. Until the cache has
// the resource, lists go to the store beneath, and a watch with initial events has these from
// there, sends no changes, and ends (io.EOF) when the cache has it. The next watch resumes
// after it.
func (c *Cache) Early(info *resource.Info) resource.Store {
	return early{c.Store(info).(*store)}
}

// List returns a page of objects.
func (e early) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	if !e.has() {
		return e.beneath.List(ctx, opts)
	}
	return e.store.List(ctx, opts)
}

// Watch starts a watch.
func (e early) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	if e.has() || opts.Since > 0 || !opts.InitialEvents {
		return e.store.Watch(ctx, opts)
	}
	list, err := e.beneath.List(ctx, resource.ListOptions{Namespace: opts.Namespace, Selector: opts.Selector, At: opts.At})
	if err != nil {
		return nil, err
	}
	if !e.cache.keepEarly(e.info, list.Items) && e.has() {
		return e.store.Watch(ctx, opts) // with the cache's copies of the objects
	}
	w := &earlyWatcher{store: e.store}
	w.ctx, w.cancel = context.WithCancel(ctx)
	for _, o := range list.Items {
		w.initial = append(w.initial, resource.Event{Type: resource.Added, Object: o, Revision: o.Revision})
	}
	w.initial = append(w.initial, resource.Event{Type: resource.Synced, Revision: list.Revision})
	return w, nil
}

// keepEarly has the first state of the cache use these objects, which its reader keeps. It
// returns false if there is a state already.
func (c *Cache) keepEarly(info *resource.Info, objects []*resource.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now.Load() != nil {
		return false
	}
	for _, o := range objects {
		c.early = append(c.early, item{info.ObjectPath(o.Key()), o})
	}
	return true
}

// useEarly replaces objects of the first state by equal ones of keepEarly. mu is held.
func (c *Cache) useEarly() {
	first := &snapshot{tree: c.tree}
	for _, it := range c.early {
		if first.same(resource.Change{Path: it.path, Object: it.obj}) != nil {
			c.tree.Set(it)
		}
	}
	c.early = nil
}

// earlyWatcher is a watch of a resource that the cache does not have yet.
type earlyWatcher struct {
	ctx     context.Context
	cancel  context.CancelFunc
	store   *store
	initial []resource.Event // nil once returned
}

// Next returns the initial events, then io.EOF once the cache has the resource.
func (w *earlyWatcher) Next(ctx context.Context) ([]resource.Event, error) {
	if w.initial != nil && w.ctx.Err() == nil {
		events := w.initial
		w.initial = nil
		return events, nil
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	if w.store.cache.waitFor(wait, w.store.info.RangePath("")) != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, io.EOF
}

// Close ends the watch.
func (w *earlyWatcher) Close() { w.cancel() }
