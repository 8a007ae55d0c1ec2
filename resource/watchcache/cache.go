package watchcache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource"
	"portico/resource/loop"
)

// Cache has the present state and the recent changes of all objects of its Feed. Safe for
// concurrent use.
type Cache struct {
	cfg   Config
	began time.Time
	ended chan struct{} // closed when Run has ended

	now      atomic.Pointer[snapshot]
	pages    pageSnapshots
	initials initials
	// minExact is the least revision that at returns, except the newest.
	minExact atomic.Int64
	waiters  waiters
	progress loop.Signal  // the feed has called Progress
	watching atomic.Int64 // running watches
	metrics  readMetrics
	// histories is the size of all event logs, in bytes.
	histories atomic.Int64

	// mu serializes the feed with readers that need a snapshot and a position in an event
	// log. It guards the fields below.
	mu   sync.Mutex
	tree *tree // the newest state; snapshots are copies of it
	// unreadable, loading, epoch and replaced are the newest snapshot's.
	unreadable []string
	loading    []string
	epoch      int
	replaced   int64
	// live is the size of the newest state, in bytes; released is the value of replaced when
	// release last dropped snapshots.
	live, released int64
	eventLogs      map[string]*eventLog // by range path
	early          []item               // objects that watches of early stores were sent before the first state
	resets         int64                // whole states received from the feed
	observers      []*observer          // of Headers
	// grown is closed, and replaced, when there is a state or more of it.
	grown chan struct{}
}

// New returns a Cache, which is empty until Run.
func New(cfg Config) *Cache {
	return &Cache{
		cfg:       cfg.withDefaults(),
		began:     time.Now(),
		grown:     make(chan struct{}),
		ended:     make(chan struct{}),
		waiters:   waiters{list: map[*waiter]struct{}{}},
		eventLogs: map[string]*eventLog{},
		metrics:   newReadMetrics(),
		initials:  initials{all: map[*initial]struct{}{}},
	}
}

// Run follows the feed until ctx ends, which ends every watch, too. It is called once. It
// returns ctx's error when all its goroutines have ended.
func (c *Cache) Run(ctx context.Context) error {
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { c.progressLoop(running) })
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

// Ready reports whether the cache has the whole state.
func (c *Cache) Ready() bool { return c.now.Load().has("") }

// WaitReady waits until the cache has the whole state. If ctx ends first, it returns ctx's error.
func (c *Cache) WaitReady(ctx context.Context) error { return c.waitFor(ctx, "") }

// waitFor waits until the cache has all objects below a prefix.
func (c *Cache) waitFor(ctx context.Context, prefix string) error {
	for {
		c.mu.Lock()
		grown := c.grown
		c.mu.Unlock()
		if c.now.Load().has(prefix) {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Revision returns the revision of the cache; 0 before it is ready.
func (c *Cache) Revision() int64 {
	if s := c.now.Load(); s != nil {
		return s.rev
	}
	return 0
}

// age returns the time since the cache was made.
func (c *Cache) age() time.Duration { return time.Since(c.began) }

// eventLog returns the event log of a range, made on first use.
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

// Forget drops the event log of a resource that is no longer served, and its metrics. Its watches
// return the changes that there are, and then io.EOF. The next Store begins a new log.
func (c *Cache) Forget(info *resource.Info) {
	path := info.RangePath("")
	c.mu.Lock()
	l := c.eventLogs[path]
	delete(c.eventLogs, path)
	c.mu.Unlock()
	if l != nil {
		c.histories.Add(-l.forget())
	}
	c.metrics.forget(info)
}

// logOf returns the event log of a path; nil if its resource is not served. mu is held. The
// range of a resource ends with one of the path's first slashes, and ranges are disjoint.
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

// at returns a snapshot in which the resource of the event log is as of a revision; nil if
// there is none, or if the store beneath may have dropped the revision. The cache must be ready.
func (c *Cache) at(l *eventLog, rev int64) *snapshot {
	s := c.now.Load()
	switch {
	case s.rev == rev:
		return s
	case rev < c.minExact.Load():
		return nil
	case s.rev > rev && l.unchanged(rev):
		return s
	}
	return c.pages.find(l, rev, s.epoch, c.age())
}

// tidyLoop releases old changes and snapshots of resources without activity.
func (c *Cache) tidyLoop(ctx context.Context) {
	ticker := time.NewTicker(tidyInterval)
	defer ticker.Stop()
	var nextMin int64        // the revision at raised
	var raised time.Duration // age of the cache when minExact was set last
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := c.age()
		if now-raised >= maxExactAge/2 {
			c.minExact.Store(nextMin)
			nextMin, raised = c.Revision(), now
		}
		c.mu.Lock()
		oldest := c.oldest()
		c.pages.tidy(now, oldest)
		c.initials.tidy(now, oldest)
		logs := slices.Collect(maps.Values(c.eventLogs))
		c.mu.Unlock()
		for _, l := range logs {
			l.tidy(now, c.cfg.History)
			c.histories.Add(l.grown())
		}
	}
}

// Memory besides the present state is bounded by the bytes of replaced objects: those of
// the event logs (History.MaxBytes), and those of snapshots that are held.
const (
	// objectBytes is the approximate size of an object besides its data.
	objectBytes = 512
	// changeBytes is the approximate size of a change besides its objects.
	changeBytes = 128
	// agedBytes bounds the changes of one resource that are older than History.Age.
	agedBytes = 1 << 20
	// heldBytes bounds the bytes replaced since a snapshot that is held for pages or for
	// initial events; half of the live bytes if that is more.
	heldBytes = 64 << 20
)

// sizeOf returns the size of an object in bytes; 0 for nil.
func sizeOf(o *resource.Object) int64 {
	if o == nil {
		return 0
	}
	return objectBytes + int64(len(o.Data))
}

// oldest returns the least snapshot.replaced that may be held. mu is held.
func (c *Cache) oldest() int64 { return c.replaced - max(heldBytes, c.live/2) }

// release drops old snapshots if much was replaced since the last call that did. mu is
// held.
func (c *Cache) release() {
	if c.replaced-c.released < heldBytes/8 {
		return
	}
	c.released = c.replaced
	now, oldest := c.age(), c.oldest()
	c.pages.tidy(now, oldest)
	c.initials.tidy(now, oldest)
}

// boundHistories removes the oldest changes of the largest event logs while all of them are
// larger than History.MaxBytes together. It removes somewhat more, so that the next change
// does not have to. mu is held.
func (c *Cache) boundHistories() {
	limit := c.cfg.History.MaxBytes
	for c.histories.Load() > limit {
		var largest *eventLog
		var size int64
		for _, l := range c.eventLogs {
			if n := l.bytes(); n > size {
				largest, size = l, n
			}
		}
		if largest == nil {
			return
		}
		largest.cut(size - (c.histories.Load() - limit) - limit/16)
		c.histories.Add(largest.grown())
	}
}
