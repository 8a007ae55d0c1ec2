package watchcache

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource"
	"portico/resource/loop"
)

// Cache holds the present state and the recent changes of everything its Feed
// delivers. Safe for concurrent use.
type Cache struct {
	cfg   Config
	began time.Time
	ready chan struct{} // closed once there is a state
	ended chan struct{} // closed when Run has ended

	now      atomic.Pointer[snapshot]
	kept     kept
	initials initials
	waiters  waiters
	progress loop.Signal  // the feed called Progress
	watching atomic.Int64 // running watches
	reads    reads
	// histories is what the event logs' histories come to, in bytes.
	histories atomic.Int64

	// mu orders what the feed delivers against who looks at a snapshot and a
	// event log together. It guards what follows and is never held for long.
	mu   sync.Mutex
	tree *tree // the newest state; snapshots are copies of it
	// unreadable, epoch and replaced are the newest snapshot's.
	unreadable []string
	epoch      int
	replaced   int64
	// live is what the newest state comes to, in bytes; tidied is replaced when
	// what holds on to old states was looked through last.
	live, tidied int64
	eventLogs    map[string]*eventLog // by range path
	resets       int64                // how often the feed delivered a whole state
}

// New returns a Cache; it knows nothing before Run.
func New(cfg Config) *Cache {
	return &Cache{
		cfg:       cfg.withDefaults(),
		began:     time.Now(),
		ready:     make(chan struct{}),
		ended:     make(chan struct{}),
		waiters:   waiters{list: map[*waiter]struct{}{}},
		eventLogs: map[string]*eventLog{},
		reads:     newReads(),

		initials: initials{all: map[*initial]struct{}{}},
	}
}

// Run follows the feed until ctx ends; then every watch ends too. It is called
// once. It returns ctx's error, when all its goroutines have ended.
func (c *Cache) Run(ctx context.Context) error {
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { c.askLoop(running) })
	wg.Go(func() { c.tidyLoop(running) })
	err := c.cfg.Feed.Run(running, sink{c})
	cancel()
	wg.Wait()
	close(c.ended)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("run feed: %w", err)
}

// Ready reports whether the cache has a state to serve.
func (c *Cache) Ready() bool { return c.now.Load() != nil }

// WaitReady waits until the cache has a state to serve, or ctx ends: then it
// returns ctx's error.
func (c *Cache) WaitReady(ctx context.Context) error {
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Revision returns the revision the cache is at; 0 before it is ready.
func (c *Cache) Revision() int64 {
	if s := c.now.Load(); s != nil {
		return s.rev
	}
	return 0
}

// age returns the time since the cache was made.
func (c *Cache) age() time.Duration { return time.Since(c.began) }

// event log returns the event log of a range, made on first use.
func (c *Cache) eventLog(rangePath string) *eventLog {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.eventLogs[rangePath]
	if l == nil {
		l = newEventLog(c.Revision())
		c.eventLogs[rangePath] = l
	}
	return l
}

// logOf returns the event log that a path belongs to; nil if nobody has asked for
// its resource. mu is held. The range of a resource ends with one of the path's
// first slashes, and no range holds another.
func (c *Cache) logOf(path string) *eventLog {
	for i := 0; ; {
		n := strings.IndexByte(path[i:], '/')
		if n < 0 {
			return nil
		}
		i += n + 1
		if l := c.eventLogs[path[:i]]; l != nil {
			return l
		}
	}
}

// at returns a snapshot that shows the event log's resource as it was at exactly
// that revision; nil if there is none at hand. The cache must be ready.
func (c *Cache) at(l *eventLog, rev int64) *snapshot {
	// A event log that has not changed since is now as it was then.
	s := c.now.Load()
	if s.rev == rev || s.rev > rev && l.unchanged(rev) {
		return s
	}
	return c.kept.find(l, rev, s.epoch, c.age())
}

// tidyLoop gives memory back that nothing else would.
func (c *Cache) tidyLoop(ctx context.Context) {
	ticker := time.NewTicker(tidyInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := c.age()
		c.mu.Lock()
		oldest := c.oldest()
		c.kept.tidy(now, oldest)
		c.initials.tidy(now, oldest)
		eventLogs := make([]*eventLog, 0, len(c.eventLogs))
		for _, l := range c.eventLogs {
			eventLogs = append(eventLogs, l)
		}
		c.mu.Unlock()
		for _, l := range eventLogs {
			l.tidy(now, c.cfg.History)
			c.histories.Add(l.spent())
			l.indexes.tidy(now)
		}
	}
}

var _ resource.FeedSink = sink{}
