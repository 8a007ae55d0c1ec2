package authn

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// reloadInterval is how often, at most, a file in use is looked at.
const reloadInterval = 10 * time.Second

// reloaded is a value read from files, and read again when they change. A caller checks
// the files at most once per interval. If they cannot be read the last value stays in
// force, and the error is logged once. Safe for concurrent use.
type reloaded[T any] struct {
	paths    []string
	load     func() (T, error)
	interval time.Duration
	current  atomic.Pointer[T]
	next     atomic.Int64 // when to look again, in Unix nanoseconds
	looking  sync.Mutex
	seen     string // guarded by looking: fingerprints of the files
}

// newReloaded reads the value for the first time; that must succeed.
func newReloaded[T any](load func() (T, error), paths ...string) (*reloaded[T], error) {
	r := &reloaded[T]{paths: paths, load: load, interval: reloadInterval, seen: fingerprints(paths)}
	value, err := load()
	if err != nil {
		return nil, err
	}
	r.current.Store(&value)
	r.next.Store(time.Now().Add(r.interval).UnixNano())
	return r, nil
}

// get returns the value. One caller looks at the files when it is time; the
// others go on with what there is.
func (r *reloaded[T]) get() T {
	if now := time.Now(); now.UnixNano() >= r.next.Load() && r.looking.TryLock() {
		r.look()
		r.next.Store(now.Add(r.interval).UnixNano())
		r.looking.Unlock()
	}
	return *r.current.Load()
}

func (r *reloaded[T]) look() {
	now := fingerprints(r.paths)
	if now == r.seen {
		return
	}
	r.seen = now
	value, err := r.load()
	if err != nil {
		slog.Error("reload credentials, keeping the last good ones", "files", r.paths, "err", err)
		return
	}
	r.current.Store(&value)
	slog.Info("credentials reloaded", "files", r.paths)
}

// fingerprints identifies the files without reading them. A file that replaces another
// one has another inode and time of change.
func fingerprints(paths []string) string {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			b.WriteString("missing;")
			continue
		}
		fmt.Fprintf(&b, "%d %d;", info.Size(), info.ModTime().UnixNano())
	}
	return b.String()
}
