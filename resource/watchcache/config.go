package watchcache

import (
	"log/slog"
	"time"

	"portico/resource"
)

// Config is the configuration of a Cache.
type Config struct {
	// Feed delivers the objects of the cache. Required.
	Feed resource.Feed
	// Store returns the store beneath of one resource. It has the writes, and the reads
	// that the cache cannot answer. If it is a [resource.Hinted], writes start from the
	// cached object. Required.
	Store func(info *resource.Info) resource.Store
	// Logger logs; nil means slog.Default().
	Logger *slog.Logger
	// History bounds the changes that are kept for watches.
	History History
	// BookmarkInterval is the time between bookmarks of a watch. Default one minute.
	BookmarkInterval time.Duration
	// FreshTimeout is how long a read waits until the cache has reached its revision. After
	// that the latest state is read from the store beneath, and other revisions are
	// rejected as too large. Default 3 s.
	FreshTimeout time.Duration
}

// History bounds the changes that are kept. A client that resumes a watch later must list
// again.
type History struct {
	// Age is how long a change of a resource is kept within the bounds below. Default 75 s.
	Age time.Duration
	// MinEvents of a resource are kept however old they are, if they are not large
	// (agedBytes). Default 100.
	MinEvents int
	// MaxEvents bounds the changes of a resource. Default 102400.
	MaxEvents int
	// MaxBytes bounds the replaced objects of all resources together; the oldest changes of
	// the largest resource are removed first. Default 64 MiB: 75 s of 200 changes a second
	// of objects of 4 KB.
	MaxBytes int64
}

const (
	// progressInterval is the time between requests for progress on behalf of waiting reads
	// if the feed does not answer.
	progressInterval = 100 * time.Millisecond
	// maxPageSnapshots is the number of snapshots kept for lists in pages, and pageAge how
	// long they are kept after their last use.
	maxPageSnapshots = 32
	pageAge          = 2 * time.Minute
	// maxExactAge bounds how long a revision is served from memory, which is 2.5 to 5 minutes. Older ones are read from
	// etcd, which knows whether they are compacted: a continue token expires as in kube-apiserver, even if the objects
	// have not changed.
	maxExactAge = 5 * time.Minute
	// tidyInterval is the time between two passes of tidyLoop.
	tidyInterval = 15 * time.Second
	// batch is the number of events that a watcher reads at a time, and batchBytes their
	// size (one may be larger). A watcher holds no more if its client does not read.
	batch      = 256
	batchBytes = 1 << 20
	// initialAge is how long the snapshot of initial events is kept while the client does
	// not read.
	initialAge = 2 * time.Minute
	// lastBookmark is the time between the last bookmark of a watch and its deadline.
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
