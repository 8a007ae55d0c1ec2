package history_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"portico/internal/testing/history"
	"portico/resource"
	"portico/resource/watchcache"
)

// lag is the maximum usual delay of laggingFeed, longLag the occasional one; the time until
// a cache reads from the store is between them.
const (
	lag          = 4 * time.Millisecond
	freshTimeout = 20 * time.Millisecond
	longLag      = 3 * freshTimeout
)

// laggingFeed delivers late, so that clients see acknowledgements before the cache has the
// write. On an idle machine a cache is so current that a read that does not wait would be
// right by chance.
type laggingFeed struct{ resource.Feed }

func (f laggingFeed) Run(ctx context.Context, sink resource.FeedSink) error {
	return f.Feed.Run(ctx, laggingSink{ctx, sink})
}

type laggingSink struct {
	ctx context.Context
	to  resource.FeedSink
}

func (s laggingSink) hold() {
	d := rand.N(lag)
	if rand.IntN(30) == 0 {
		d = longLag
	}
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}

func (s laggingSink) Reset(rev int64, state []resource.Change) {
	s.hold()
	s.to.Reset(rev, state)
}

func (s laggingSink) Apply(changes []resource.Change) {
	s.hold()
	s.to.Apply(changes)
}

func (s laggingSink) Progress(rev int64) {
	s.hold()
	s.to.Progress(rev)
}

// laggingCaches are two servers on one etcd with caches that are always late.
func laggingCaches(t *testing.T) history.System {
	s := newEtcd(t)
	open := func(name string) history.Door {
		client, _ := s.open(t)
		return newCached(t, func() watchcache.Config {
			return watchcache.Config{Feed: laggingFeed{client.Feed()}, Store: client.Store, FreshTimeout: freshTimeout}
		}).door(name)
	}
	return history.System{Doors: []history.Door{open("late cache a"), open("late cache b")}, Journal: s.log, Late: true}
}
