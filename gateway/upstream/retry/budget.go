// Package retry decides whether a request may be sent again (decision.go), keeps its body
// for that (body.go), and bounds how much of the traffic to a server may be retries
// (budget.go), so that a server that fails does not get a multiple of its load.
//
// The decision follows from the method, from the types of errors and from what was
// written to the connection, never from the text of an error.
//
// Runs in: gateway.
package retry

import (
	"sync"
	"sync/atomic"
	"time"
)

// window is how many seconds of requests a Budget counts, the current one included.
const window = 10

// Budget bounds retries to a share of the requests of the last ten seconds. A request
// costs one addition and one comparison; the lock is taken by the first request of a
// second, and by retries. Begin must be called before a Budget is used. Safe for
// concurrent use.
type Budget struct {
	start    time.Time
	requests atomic.Uint64
	second   atomic.Int64 // of the last request

	mu sync.Mutex
	// before is the number of requests before a second began, and retries the number of
	// retries in it; by the second modulo window.
	before  [window]uint64
	retries [window]uint64
	filled  int64 // the last second that is in them
}

// Begin sets the time from which seconds are counted.
func (b *Budget) Begin(now time.Time) { b.start = now }

// Requests is how many requests were counted.
func (b *Budget) Requests() uint64 { return b.requests.Load() }

// Count counts a request.
func (b *Budget) Count(now time.Time) {
	if s := int64(now.Sub(b.start) / time.Second); s != b.second.Load() {
		b.mu.Lock()
		b.advance(s)
		b.mu.Unlock()
	}
	b.requests.Add(1)
}

// advance begins a second, and those before it without a request; mu is held.
func (b *Budget) advance(second int64) {
	if second <= b.filled {
		return
	}
	n := b.requests.Load()
	for s := max(b.filled+1, second-window+1); s <= second; s++ {
		b.before[s%window], b.retries[s%window] = n, 0
	}
	b.filled = second
	b.second.Store(second)
}

// Take takes one retry out of the budget and reports whether there was one: perSecond
// retries in each second, and beyond these percent of the requests.
func (b *Budget) Take(now time.Time, percent, perSecond int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.advance(int64(now.Sub(b.start) / time.Second))
	oldest := max(0, b.filled-window+1)
	requests := b.requests.Load() - b.before[oldest%window]
	var retries uint64
	for _, n := range b.retries {
		retries += n
	}
	present := &b.retries[b.filled%window]
	if *present >= uint64(perSecond) && (retries+1)*100 > requests*uint64(percent) {
		return false
	}
	*present++
	return true
}
