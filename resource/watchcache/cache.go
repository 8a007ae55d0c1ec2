package watchcache

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/btree"

	"portico/resource"
)

// Limits that upstream's watch cache has too (contract 5.2, 5.5).
const (
	// freshTimeout is how long a read waits for the cache to get to a revision.
	freshTimeout = 3 * time.Second
	// progressInterval is how often a waiting read asks for progress.
	progressInterval = 100 * time.Millisecond
	// A lane keeps every change of historyWindow, but no fewer than minHistory
	// and no more than maxHistory.
	historyWindow = 75 * time.Second
	minHistory    = 100
	maxHistory    = 102400
	// bookmarkInterval is the default of Config.BookmarkInterval.
	bookmarkInterval = time.Minute
	// keptSnapshots is how many snapshots are kept for lists read in pages.
	keptSnapshots = 16
)

// Config of a Cache.
type Config struct {
	// Feed delivers everything the cache holds. Required.
	Feed resource.Feed
	// Store makes the store beneath, for one resource. Required.
	Store func(info *resource.Info) resource.Store
	// BookmarkInterval is the time between bookmarks of a watch that wants
	// them. Default one minute.
	BookmarkInterval time.Duration
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// item is one object in the tree.
type item struct {
	path string
	obj  *resource.Object
}

func lessItem(a, b item) bool { return a.path < b.path }

// snapshot is the state of everything at one revision. Immutable.
type snapshot struct {
	tree *btree.BTreeG[item]
	rev  int64
	// moved is closed when there is a newer snapshot.
	moved chan struct{}
}

// Cache holds the present state and the recent changes of everything its Feed
// delivers. Safe for concurrent use.
type Cache struct {
	cfg   Config
	ready chan struct{} // closed once there is a state
	now   atomic.Pointer[snapshot]

	mu    sync.Mutex // guards what follows and the order of publishing
	tree  *btree.BTreeG[item]
	lanes map[string]*lane // by range path
	kept  []*snapshot      // for continue tokens, oldest first
}

// New returns a Cache; it knows nothing before Run.
func New(cfg Config) *Cache {
	if cfg.BookmarkInterval <= 0 {
		cfg.BookmarkInterval = bookmarkInterval
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	return &Cache{cfg: cfg, ready: make(chan struct{}), lanes: map[string]*lane{}}
}

// Run follows the feed until ctx ends; then every watch ends too. It returns
// ctx's error.
func (c *Cache) Run(ctx context.Context) error {
	err := c.cfg.Feed.Run(ctx, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lanes {
		l.end()
	}
	return err
}

// Ready reports whether the cache has a state to serve.
func (c *Cache) Ready() bool { return c.now.Load() != nil }

// WaitReady waits until the cache has a state to serve, or ctx ends.
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

// Reset replaces the state; it is called by the feed. Watchers go on: they are
// sent the difference between what was and what is.
func (c *Cache) Reset(rev int64, state []resource.Change) {
	tree := btree.NewBTreeGOptions(lessItem, btree.Options{NoLocks: true})
	for _, ch := range state {
		tree.Load(item{ch.Path, ch.Object})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.tree
	c.tree = tree
	c.publish(rev)
	if old == nil {
		for _, l := range c.lanes {
			l.oldest = rev
		}
		close(c.ready)
		return
	}
	for _, ch := range difference(old, tree, rev) {
		if l := c.laneOf(ch.path); l != nil {
			l.append(ch.change)
		}
	}
	for _, l := range c.lanes {
		l.wake()
	}
}

// Apply takes changes in; it is called by the feed.
func (c *Cache) Apply(changes []resource.Change) {
	if len(changes) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	touched := map[*lane]bool{}
	for _, ch := range changes {
		var prev item
		if ch.Object == nil {
			prev, _ = c.tree.Delete(item{path: ch.Path})
		} else {
			prev, _ = c.tree.Set(item{ch.Path, ch.Object})
		}
		if prev.obj == nil && ch.Object == nil {
			continue // gone before it was seen
		}
		if l := c.laneOf(ch.Path); l != nil {
			l.append(&change{rev: ch.Revision, prev: prev.obj, cur: ch.Object})
			touched[l] = true
		}
	}
	// The state first: whoever is woken by an event finds it there.
	c.publish(changes[len(changes)-1].Revision)
	for l := range touched {
		l.wake()
	}
}

// Progress notes that nothing else happened up to rev; called by the feed.
func (c *Cache) Progress(rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.now.Load(); s != nil && s.rev < rev {
		c.publish(rev)
	}
}

// publish makes the tree the present snapshot; mu is held.
func (c *Cache) publish(rev int64) {
	old := c.now.Load()
	c.now.Store(&snapshot{tree: c.tree.Copy(), rev: rev, moved: make(chan struct{})})
	if old != nil {
		close(old.moved)
	}
}

// lane returns the lane of a range, made on first use; mu is held.
func (c *Cache) lane(rangePath string) *lane {
	l := c.lanes[rangePath]
	if l == nil {
		l = newLane(c.Revision())
		c.lanes[rangePath] = l
	}
	return l
}

// laneOf returns the lane that a path belongs to; nil if nobody serves it. mu
// is held. The range of a resource ends with the first, second or third slash.
func (c *Cache) laneOf(path string) *lane {
	for i := 0; i < len(path); {
		n := strings.IndexByte(path[i:], '/')
		if n < 0 {
			return nil
		}
		i += n + 1
		if l := c.lanes[path[:i]]; l != nil {
			return l
		}
	}
	return nil
}

// keep remembers a snapshot for the pages that follow a first one.
func (c *Cache) keep(s *snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kept {
		if k.rev == s.rev {
			return
		}
	}
	c.kept = append(c.kept, s)
	if len(c.kept) > keptSnapshots {
		c.kept = append([]*snapshot(nil), c.kept[1:]...)
	}
}

// at returns the snapshot of exactly that revision, if it is at hand.
func (c *Cache) at(rev int64) *snapshot {
	if s := c.now.Load(); s != nil && s.rev == rev {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kept {
		if k.rev == rev {
			return k
		}
	}
	return nil
}

// caughtUp returns the present revision if a watcher that stands at number has
// seen every change of its lane up to it.
func (c *Cache) caughtUp(l *lane, number int64) (rev int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Revision(), l.next() == number
}
