package watchcache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource/loop"
)

// waiter is a read that waits for a revision.
type waiter struct {
	rev     int64
	reached chan struct{}
}

// waiters are the reads that wait. Safe for concurrent use.
type waiters struct {
	added loop.Signal
	n     atomic.Int64 // len(list), readable without mu
	mu    sync.Mutex
	list  map[*waiter]struct{}
}

func (ws *waiters) add(rev int64) *waiter {
	w := &waiter{rev: rev, reached: make(chan struct{})}
	ws.mu.Lock()
	ws.list[w] = struct{}{}
	ws.n.Add(1)
	ws.mu.Unlock()
	ws.added.Set()
	return w
}

func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if _, ok := ws.list[w]; ok {
		delete(ws.list, w)
		ws.n.Add(-1)
	}
}

// release wakes the waiters for rev and less. It is called after the snapshot of rev was
// published, and wait reads the snapshot after it has added a waiter, so none is missed.
func (ws *waiters) release(rev int64) {
	if ws.n.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.list {
		if w.rev <= rev {
			delete(ws.list, w)
			ws.n.Add(-1)
			close(w.reached)
		}
	}
}

// wait returns a snapshot at rev or later; nil if the cache does not reach rev by the
// deadline or no longer runs. Its error is ctx's. The cache must be ready.
func (c *Cache) wait(ctx context.Context, rev int64, deadline time.Time) (*snapshot, error) {
	if s := c.now.Load(); s.rev >= rev {
		return s, nil
	}
	w := c.waiters.add(rev)
	defer c.waiters.remove(w)
	if s := c.now.Load(); s.rev >= rev {
		return s, nil
	}
	timeout := time.NewTimer(time.Until(deadline))
	defer timeout.Stop()
	select {
	case <-w.reached:
		return c.now.Load(), nil
	case <-timeout.C:
	case <-c.ended:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return nil, nil
}

// progressLoop requests progress from the feed while reads wait: a storage without changes
// sends no events that advance the cache. While there are watches, it also requests progress
// once per bookmark interval, so that bookmarks advance.
func (c *Cache) progressLoop(ctx context.Context) {
	idle := time.NewTicker(c.cfg.BookmarkInterval)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.waiters.added.C():
			c.requestWhileWaiting(ctx)
		case <-idle.C:
			if c.watching.Load() > 0 {
				c.requestProgress(ctx)
			}
		}
	}
}

// requestWhileWaiting keeps one request in progress until no read waits. After an answer
// that advanced the cache the next request follows at once; after another one, after a
// growing pause, because etcd may lag.
func (c *Cache) requestWhileWaiting(ctx context.Context) {
	const shortest = time.Millisecond
	pause := shortest
	timer := time.NewTimer(progressInterval)
	defer timer.Stop()
	for c.waiters.n.Load() > 0 {
		before := c.Revision()
		select {
		case <-c.progress.C(): // of an earlier request
		default:
		}
		c.requestProgress(ctx)
		timer.Reset(progressInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			continue
		case <-c.progress.C():
		}
		if c.Revision() > before {
			pause = shortest
			continue
		}
		timer.Reset(pause)
		pause = min(2*pause, progressInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// requestProgress requests progress; callers repeat it as needed.
func (c *Cache) requestProgress(ctx context.Context) {
	if err := c.cfg.Feed.RequestProgress(ctx); err != nil && ctx.Err() == nil {
		c.cfg.Logger.Debug("request for progress failed", "error", err)
	}
}
