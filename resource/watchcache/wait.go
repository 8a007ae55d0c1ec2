package watchcache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource/loop"
)

// waiter is a read that waits for the tree to get to a revision.
type waiter struct {
	rev     int64
	reached chan struct{}
}

// waiters are all of them.
type waiters struct {
	some loop.Signal  // there is a new one
	n    atomic.Int64 // len(list), readable without mu
	mu   sync.Mutex
	list map[*waiter]struct{}
}

func (ws *waiters) add(rev int64) *waiter {
	w := &waiter{rev: rev, reached: make(chan struct{})}
	ws.mu.Lock()
	ws.list[w] = struct{}{}
	ws.n.Add(1)
	ws.mu.Unlock()
	ws.some.Set()
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

// release lets those go that wait for rev or less. It is called after the
// snapshot of rev was published; who adds a waiter looks at the snapshot after
// that, so one of the two sees the other.
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

// wait returns a snapshot that is at rev or later; nil when the cache did not
// get there before the deadline, or does not run any more. Its error is ctx's.
// The cache must be ready.
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

// askLoop asks the feed for progress while anybody waits: a quiet storage sends
// no events that would tell how far it is. It also asks once per bookmark
// interval while there are watches, so that bookmarks move on.
func (c *Cache) askLoop(ctx context.Context) {
	idle := time.NewTicker(c.cfg.BookmarkInterval)
	defer idle.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.waiters.some.C():
			c.askWhileWaiting(ctx)
		case <-idle.C:
			if c.watching.Load() > 0 {
				c.ask(ctx)
			}
		}
	}
}

// askWhileWaiting has one request under way until nobody waits. An answer that
// comes while others have begun to wait is followed by another request at once;
// one that did not move the cache, after a growing pause, for etcd may lag.
func (c *Cache) askWhileWaiting(ctx context.Context) {
	const shortest = time.Millisecond
	pause := shortest
	timer := time.NewTimer(askInterval)
	defer timer.Stop()
	for c.waiters.n.Load() > 0 {
		before := c.Revision()
		select {
		case <-c.progress.C(): // an earlier one, which says nothing now
		default:
		}
		c.ask(ctx)
		timer.Reset(askInterval)
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
		pause = min(2*pause, askInterval)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

// ask requests progress; a request that fails is made again if it is needed.
func (c *Cache) ask(ctx context.Context) {
	if err := c.cfg.Feed.RequestProgress(ctx); err != nil && ctx.Err() == nil {
		c.cfg.Logger.Debug("request for progress failed", "error", err)
	}
}
