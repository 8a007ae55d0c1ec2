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
	"time"
)

// window is how many seconds a Budget covers, the current one included.
const window = 10

// Budget bounds retries to a share of the requests of the last ten seconds. The zero
// value has seen no requests. Safe for concurrent use.
type Budget struct {
	mu     sync.Mutex
	second int64 // of the Unix epoch; the last that is counted
	// requests and retries are counts by the second modulo window.
	requests, retries [window]int
}

// Count counts a request.
func (b *Budget) Count(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests[b.advance(now)]++
}

// advance forgets the seconds that have left the window, and returns the index of the
// current one; mu is held.
func (b *Budget) advance(now time.Time) (current int64) {
	for s := max(b.second, now.Unix()-window); s < now.Unix(); s++ {
		b.requests[(s+1)%window], b.retries[(s+1)%window] = 0, 0
	}
	b.second = max(b.second, now.Unix())
	return b.second % window
}

// Take takes one retry out of the budget and reports whether there was one: perSecond
// retries in each second, and beyond these percent of the requests.
func (b *Budget) Take(now time.Time, percent, perSecond int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	current := b.advance(now)
	requests, retries := 0, 0
	for i := range window {
		requests, retries = requests+b.requests[i], retries+b.retries[i]
	}
	if b.retries[current] >= perSecond && (retries+1)*100 > requests*percent {
		return false
	}
	b.retries[current]++
	return true
}
