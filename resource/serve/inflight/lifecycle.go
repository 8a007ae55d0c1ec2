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
	short     group
	long      longGroup
}

// Reject makes Rejecting return true: new requests are to be rejected.
func (l *Lifecycle) Reject() { l.rejecting.Store(true) }

// Rejecting reports whether new requests are to be rejected.
func (l *Lifecycle) Rejecting() bool { return l.rejecting.Load() }

// AddShort counts a short request until RemoveShort; false after CloseShort.
func (l *Lifecycle) AddShort() bool { return l.short.add() }

// RemoveShort follows a successful AddShort.
func (l *Lifecycle) RemoveShort() { l.short.remove() }

// AddLong counts a long-running request, which end ends, until RemoveLong; false after
// CloseLong.
func (l *Lifecycle) AddLong(end *context.CancelCauseFunc) bool { return l.long.add(end) }

// RemoveLong follows a successful AddLong.
func (l *Lifecycle) RemoveLong(end *context.CancelCauseFunc) { l.long.remove(end) }

// CloseShort admits no further short requests. The channel is closed when the last one has
// ended. It is called once.
func (l *Lifecycle) CloseShort() <-chan struct{} { return l.short.close() }

// CloseLong is CloseShort for long-running requests.
func (l *Lifecycle) CloseLong() <-chan struct{} { return l.long.close() }

// EndLong ends the contexts of the long-running requests within the time, at endRate or
// faster; all at once if the time is not positive.
func (l *Lifecycle) EndLong(within time.Duration) { l.long.end(within) }

// Count returns the number of short and long-running requests.
func (l *Lifecycle) Count() (short, long int) { return l.short.count(), l.long.count() }

// group counts requests until it is closed. Unlike a sync.WaitGroup it admits more while
// something waits for it.
type group struct {
	mu     sync.Mutex
	n      int
	closed bool
	empty  chan struct{} // made by close
}

func (g *group) add() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *group) remove() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.closed && g.n == 0 {
		close(g.empty)
	}
}

func (g *group) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.empty = true, make(chan struct{})
	if g.n == 0 {
		close(g.empty)
	}
	return g.empty
}

func (g *group) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// longGroup is a group of requests that end when they are told to.
type longGroup struct {
	group
	ending sync.Mutex
	ends   map[*context.CancelCauseFunc]struct{}
}

// add counts a request. One that is added before close is in ends after it.
func (g *longGroup) add(end *context.CancelCauseFunc) bool {
	g.ending.Lock()
	defer g.ending.Unlock()
	if !g.group.add() {
		return false
	}
	if g.ends == nil {
		g.ends = make(map[*context.CancelCauseFunc]struct{})
	}
	g.ends[end] = struct{}{}
	return true
}

func (g *longGroup) remove(end *context.CancelCauseFunc) {
	g.ending.Lock()
	delete(g.ends, end)
	g.ending.Unlock()
	g.group.remove()
}

func (g *longGroup) end(within time.Duration) {
	per := int(endRate * endEvery / time.Second)
	if within > 0 {
		per = max(per, int(int64(g.count())*int64(endEvery)/int64(within))+1)
	}
	for g.endSome(per, within <= 0) {
		<-time.After(endEvery)
	}
}

// endSome ends n requests, or all, and reports whether there are more.
func (g *longGroup) endSome(n int, all bool) bool {
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
