package watchcache

import (
	"log/slog"
	"time"

	"portico/resource"
)

// Config of a Cache.
type Config struct {
	// Feed delivers everything the cache holds. Required.
	Feed resource.Feed
	// Store makes the store beneath, for one resource. It takes the writes, and
	// the reads that memory cannot answer. If it is a [resource.Hinted], writes
	// start from the cached object. Required.
	Store func(info *resource.Info) resource.Store
	// Logger, nil: slog.Default().
	Logger *slog.Logger
	// History bounds the past that is kept for watches to go on from.
	History History
	// BookmarkInterval is the time between bookmarks of a watch that wants
	// them. Default one minute.
	BookmarkInterval time.Duration
	// FreshTimeout is how long a read waits for the cache to be as new as it
	// asks; then Latest is read from the store beneath, and a revision is
	// refused as too large. Default 3 s.
	FreshTimeout time.Duration
}

// History says how many of the changes of one resource are kept. A client that
// comes back later than that has to list again.
type History struct {
	// Age is how long a change is kept at least, within the bounds below.
	// Default 75 s.
	Age time.Duration
	// MinEvents are kept however old they are, if they are not large (agedBytes).
	// Default 100.
	MinEvents int
	// MaxEvents bounds what is kept however young it is. Default 102400.
	MaxEvents int
	// MaxBytes bounds what is kept of all resources together: the states that
	// were replaced. The resource that has most of it forgets first. Default 64
	// MiB: 75 s of 200 changes a second, of objects of 4 KB.
	MaxBytes int64
}

// More limits, of things that nobody has had to change yet.
const (
	// askInterval is how often waiting reads have the feed asked for progress
	// if it does not answer.
	askInterval = 100 * time.Millisecond
	// keptSnapshots is how many snapshots are kept for lists read in pages, and
	// keptAge for how long after their last use.
	keptSnapshots = 32
	keptAge       = 2 * time.Minute
	// tidyInterval is how often event logs and kept snapshots are tidied up.
	tidyInterval = 15 * time.Second
	// batch is how many events a watcher looks at, at a time, and batchBytes how
	// large their objects may be together (one may be larger): a watcher whose
	// client does not read holds on to no more.
	batch      = 256
	batchBytes = 1 << 20
	// initialAge is for how long the state that a watch begins with is kept
	// while its client does not read on. It holds on to everything that the
	// process had then.
	initialAge = 2 * time.Minute
	// lastBookmark is how long before its deadline a watch gets a bookmark.
	lastBookmark = 2 * time.Second
)

func (cfg Config) withDefaults() Config {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.BookmarkInterval <= 0 {
		cfg.BookmarkInterval = time.Minute
	}
	if cfg.FreshTimeout <= 0 {
		cfg.FreshTimeout = 3 * time.Second
	}
	h := &cfg.History
	if h.Age <= 0 {
		h.Age = 75 * time.Second
	}
	if h.MinEvents <= 0 {
		h.MinEvents = 100
	}
	if h.MaxEvents <= 0 {
		h.MaxEvents = 102400
	}
	h.MinEvents = min(h.MinEvents, h.MaxEvents)
	if h.MaxBytes <= 0 {
		h.MaxBytes = 64 << 20
	}
	return cfg
}
