package history_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/history"
	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/watchcache"
)

var quiet = slog.New(slog.DiscardHandler)

// cached is a watch cache that can be restarted.
type cached struct {
	config func() watchcache.Config
	store  atomic.Pointer[resource.Store]
	stop   func()
}

// patient is longer than any test.
const patient = 20 * time.Second

func newCached(t *testing.T, config func() watchcache.Config) *cached {
	c := &cached{config: config}
	if err := c.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *cached) start(ctx context.Context) error {
	cfg := c.config()
	cfg.Logger = quiet
	if cfg.BookmarkInterval == 0 {
		cfg.BookmarkInterval = 5 * time.Millisecond
	}
	if cfg.FreshTimeout == 0 {
		cfg.FreshTimeout = patient
	}
	cache := watchcache.New(cfg)
	running, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cache.Run(running) // it returns running's error
	}()
	c.stop = func() {
		cancel()
		<-done
	}
	store := cache.Store(history.Info())
	c.store.Store(&store)
	return cache.WaitReady(ctx)
}

func (c *cached) restart(ctx context.Context) error {
	c.stop()
	return c.start(ctx)
}

func (c *cached) door(name string) history.Door {
	return history.Door{Name: name, Store: func() resource.Store { return *c.store.Load() }}
}

// resettingFeed starts another feed anew on request.
type resettingFeed struct {
	resource.Feed
	requests chan chan struct{}
}

// resetSink closes done when its sink got a Reset.
type resetSink struct {
	resource.FeedSink
	done chan struct{}
}

func (s *resetSink) Reset(rev int64, state []resource.Change) {
	s.FeedSink.Reset(rev, state)
	if s.done != nil {
		close(s.done)
		s.done = nil
	}
}

func (f resettingFeed) Run(ctx context.Context, sink resource.FeedSink) error {
	var done chan struct{}
	for ctx.Err() == nil {
		some, cancel := context.WithCancel(ctx)
		requested := make(chan chan struct{}, 1)
		go func() {
			defer cancel()
			select {
			case done := <-f.requests:
				requested <- done
			case <-some.Done():
			}
		}()
		_ = f.Feed.Run(some, &resetSink{sink, done}) // it returns some's error
		cancel()
		select {
		case done = <-requested:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// reset returns when the sink got a Reset.
func (f resettingFeed) reset(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case f.requests <- done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// cacheOverMemory is a watch cache and the storage that feeds it.
func cacheOverMemory(t *testing.T) history.System {
	m := memstore.New()
	feed := resettingFeed{m.Feed(), make(chan chan struct{})}
	c := newCached(t, func() watchcache.Config { return watchcache.Config{Feed: feed, Store: m.Store} })
	direct, j := m.Store(history.Info()), journalOf(t, m.Feed())
	return history.System{
		Doors: []history.Door{
			c.door("cache"), c.door("cache"),
			{Name: "memory", Store: func() resource.Store { return direct }},
		},
		Compact:  func(_ context.Context, rev int64) error { m.Compact(min(rev, j.Position())); return nil },
		Restarts: []func(context.Context) error{c.restart, feed.reset},
		Journal:  j.Read,
	}
}

// forgetfulCache has a short history: slow clients must list again.
func forgetfulCache(t *testing.T) history.System {
	m := memstore.New()
	c := newCached(t, func() watchcache.Config {
		return watchcache.Config{Feed: m.Feed(), Store: m.Store, History: watchcache.History{MaxEvents: 16}}
	})
	return history.System{Doors: []history.Door{c.door("forgetful cache")}, Forgetful: true}
}

// process is the cache of a process with a connection to etcd.
type process struct {
	*cached
	isolate func(context.Context) error
}

func newProcess(t *testing.T, s *etcdServer) process {
	client, relay := s.open(t)
	return process{newCached(t, func() watchcache.Config {
		return watchcache.Config{Feed: client.Feed(), Store: client.Store}
	}), s.isolate(relay)}
}

// twoCaches are the caches of two processes on one etcd, and etcd itself.
func twoCaches(t *testing.T) history.System {
	s := newEtcd(t)
	a, b := newProcess(t, s), newProcess(t, s)
	sys := s.system()
	sys.Doors = []history.Door{a.door("cache a"), b.door("cache b"), s.door(t, a.cached)}
	sys.Restarts = append(sys.Restarts, a.restart, b.restart, a.isolate, b.isolate)
	return sys
}
