package watchcache

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// Watch starts a watch. A cache that is not ready is given a moment.
func (s *store) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	if err := s.awaitReady(ctx); err != nil {
		return nil, err
	}
	w := &watcher{cache: s.cache, lane: s.lane, opts: opts, bookmark: time.Now().Add(s.cache.cfg.BookmarkInterval)}
	if err := s.position(ctx, w); err != nil {
		return nil, err
	}
	w.ctx, w.close = context.WithCancel(ctx)
	return w, nil
}

func (s *store) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, freshTimeout)
	defer cancel()
	if s.cache.WaitReady(ctx) != nil {
		return apierrors.NewTooManyRequests("storage is (re)initializing", 1)
	}
	return nil
}

// position puts a watcher where it begins.
func (s *store) position(ctx context.Context, w *watcher) error {
	if since := w.opts.Since; since > 0 {
		if _, err := s.cache.wait(ctx, since); err == errTooLate {
			return resource.TooLargeRevision(since, s.cache.Revision())
		} else if err != nil {
			return err
		}
		number, oldest, ok := s.lane.after(since)
		if !ok {
			return resource.ExpiredWatch(since, oldest)
		}
		w.number = number
		return nil
	}
	if err := s.reach(ctx, w.opts.At); err != nil {
		return err
	}
	// Under the mutex no change comes between the state and the position.
	s.cache.mu.Lock()
	now := s.cache.now.Load()
	w.number = s.lane.next()
	s.cache.mu.Unlock()
	if w.opts.InitialEvents {
		w.initial = s.initial(now, w.opts)
	}
	return nil
}

// reach waits until the cache is as new as asked for. Unlike a read, a watch
// has no store beneath to fall back on.
func (s *store) reach(ctx context.Context, at resource.At) error {
	now, err := s.fresh(ctx, at)
	if err == nil && now == nil {
		return apierrors.NewTimeoutError("the cache could not be brought up to date", 1)
	}
	return err
}

// initial returns the events that build up the state.
func (s *store) initial(at *snapshot, opts resource.WatchOptions) []resource.Event {
	var out []resource.Event
	prefix := s.info.RangePath(opts.Namespace)
	at.tree.Ascend(item{path: prefix}, func(it item) bool {
		if !strings.HasPrefix(it.path, prefix) {
			return false
		}
		if opts.Selector.Matches(it.obj) {
			out = append(out, resource.Event{Type: resource.Added, Object: it.obj, Revision: it.obj.Revision})
		}
		return true
	})
	return append(out, resource.Event{Type: resource.Synced, Revision: at.rev})
}
