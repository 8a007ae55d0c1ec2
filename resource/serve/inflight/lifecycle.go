// Package inflight counts the connections and requests that a server has in flight, to
// limit them and to end them in order at shutdown.
//
// Runs in: gateway, core, crd.
package inflight

import (
	"context"
	"errors"
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
	rejecting atomic.Bool
	Short     Group
	Long      LongGroup
}

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
	empty  chan struct{} // made by close
}

// Add counts a request until Remove; false after Close.
func (g *Group) Add() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

// Remove follows a successful Add.
func (g *Group) Remove() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.empty)
	}
}

// Close admits no further requests. The channel is closed when the last one has ended. It is called
// once.
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

// LongGroup is a Group of requests that End ends.
type LongGroup struct {
	Group
	ending sync.Mutex
	ends   map[*context.CancelCauseFunc]struct{}
}

// Add counts a request, which end ends, until Remove; false after Close.
func (g *LongGroup) Add(end *context.CancelCauseFunc) bool {
	g.ending.Lock()
	defer g.ending.Unlock()
	if !g.Group.Add() {
		return false
	}
	if g.ends == nil {
		g.ends = make(map[*context.CancelCauseFunc]struct{})
	}
	g.ends[end] = struct{}{}
	return true
}

// Remove follows a successful Add.
func (g *LongGroup) Remove(end *context.CancelCauseFunc) {
	g.ending.Lock()
	delete(g.ends, end)
	g.ending.Unlock()
	g.Group.Remove()
}

// End ends the contexts of the requests within the time, at endRate or faster; all at once if the
// time is not positive.
func (g *LongGroup) End(within time.Duration) {
	per := int(endRate * endEvery / time.Second)
	if within > 0 {
		per = max(per, int(int64(g.Count())*int64(endEvery)/int64(within))+1)
	}
	for g.endSome(per, within <= 0) {
		<-time.After(endEvery)
	}
}

// endSome ends n requests, or all, and reports whether there are more.
func (g *LongGroup) endSome(n int, all bool) bool {
	g.ending.Lock()
	defer g.ending.Unlock()
	for end := range g.ends {
		if n--; n < 0 && !all {
			return true
		}
		(*end)(ErrShuttingDown)
		delete(g.ends, end)
	}
	return false
}
