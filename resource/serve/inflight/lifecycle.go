// Package inflight counts the connections and requests that a server has in flight, to
// limit them and to end them in order at shutdown.
//
// Runs in: gateway, core, crd.
package inflight

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrShuttingDown is the cause (context.Cause) of the end of a long-running request that
// shutdown ends.
var ErrShuttingDown = errors.New("the server is shutting down")

// Long-running requests end at endRate a second or faster. Their clients reconnect at once,
// to other servers or to the next process, which all of them together would overload.
const (
	endRate  = 200
	endEvery = 20 * time.Millisecond
)

// Lifecycle tracks the requests in flight for shutdown: it waits for the short ones and
// ends the contexts of the long-running ones. The zero value is ready. Safe for concurrent
// use.
type Lifecycle struct {
	leaving, rejecting atomic.Bool
	Short, Long        Group
}

// Leave makes Leaving return true: connections are to end with the responses on them.
func (l *Lifecycle) Leave() { l.leaving.Store(true) }

// Leaving reports whether connections are to end with the responses on them.
func (l *Lifecycle) Leaving() bool { return l.leaving.Load() }

// Reject makes Rejecting return true: new requests are to be rejected.
func (l *Lifecycle) Reject() { l.rejecting.Store(true) }

// Rejecting reports whether new requests are to be rejected.
func (l *Lifecycle) Rejecting() bool { return l.rejecting.Load() }

// Group counts requests until it is closed. Unlike a sync.WaitGroup it admits more while
// something waits for it. Safe for concurrent use.
type Group struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{}                         // made by Close
	ends   map[*context.CancelCauseFunc]struct{} // of the requests that End ends
}

// Add counts a request until Remove with the same end; false after Close. End calls end,
// which identifies the request; nil: the request ends by itself.
func (g *Group) Add(end *context.CancelCauseFunc) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	if end != nil {
		if g.ends == nil {
			g.ends = make(map[*context.CancelCauseFunc]struct{})
		}
		g.ends[end] = struct{}{}
	}
	return true
}

// Remove follows a successful Add.
func (g *Group) Remove(end *context.CancelCauseFunc) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ends, end)
	g.n--
	if g.closed && g.n == 0 {
		close(g.empty)
	}
}

// Close admits no further requests. The channel is closed when the last one has ended. It
// is called once.
func (g *Group) Close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.empty = true, make(chan struct{})
	if g.n == 0 {
		close(g.empty)
	}
	return g.empty
}

// Count returns the number of requests.
func (g *Group) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// End ends the contexts of the requests of a closed Group within the time, at endRate or
// faster.
func (g *Group) End(within time.Duration) {
	g.mu.Lock()
	ends := slices.Collect(maps.Keys(g.ends))
	g.mu.Unlock()
	per := max(int(endRate*endEvery/time.Second), int(int64(len(ends))*int64(endEvery)/int64(within))+1)
	for len(ends) > 0 {
		n := min(per, len(ends))
		for _, end := range ends[:n] {
			(*end)(ErrShuttingDown)
		}
		if ends = ends[n:]; len(ends) > 0 {
			<-time.After(endEvery)
		}
	}
}
