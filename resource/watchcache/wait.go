package watchcache

import (
	"context"
	"errors"
	"time"
)

// errTooLate says that the cache did not get to a revision in time.
var errTooLate = errors.New("the cache did not get there in time")

// wait returns the first snapshot that is at rev or later, or errTooLate after
// freshTimeout. While it waits it asks the feed for progress: a quiet store
// sends no events that would tell how far it is.
func (c *Cache) wait(ctx context.Context, rev int64) (*snapshot, error) {
	now := c.now.Load()
	if now.rev >= rev {
		return now, nil
	}
	deadline := time.NewTimer(freshTimeout)
	defer deadline.Stop()
	ask := time.NewTicker(progressInterval)
	defer ask.Stop()
	// A failed request is made again with the next tick.
	_ = c.cfg.Feed.RequestProgress(ctx)
	for {
		if now = c.now.Load(); now.rev >= rev {
			return now, nil
		}
		select {
		case <-now.moved:
		case <-ask.C:
			_ = c.cfg.Feed.RequestProgress(ctx)
		case <-deadline.C:
			return nil, errTooLate
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
