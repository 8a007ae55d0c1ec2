package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

// budgetWindow is how many seconds of requests count, this one included.
const budgetWindow = 10

// budget bounds retries to a share of the requests of the last ten seconds. A
// request costs it one addition and one comparison; the lock is for the first of
// a second, and for retries.
type budget struct {
	start    time.Time
	requests atomic.Uint64
	second   atomic.Int64 // of the last request

	mu sync.Mutex
	// before are how many requests there were before a second began, and retries
	// those in it; by the second modulo their number.
	before  [budgetWindow]uint64
	retries [budgetWindow]uint64
	filled  int64 // the last second that is in them
}

func (b *budget) begin(now time.Time) { b.start = now }

// count takes a request into account.
func (b *budget) count(now time.Time) {
	if s := int64(now.Sub(b.start) / time.Second); s != b.second.Load() {
		b.mu.Lock()
		b.turn(s)
		b.mu.Unlock()
	}
	b.requests.Add(1)
}

// turn begins a second, and those before it of which nothing was heard; mu is
// held.
func (b *budget) turn(second int64) {
	if second <= b.filled {
		return
	}
	n := b.requests.Load()
	for s := max(b.filled+1, second-budgetWindow+1); s <= second; s++ {
		b.before[s%budgetWindow], b.retries[s%budgetWindow] = n, 0
	}
	b.filled = second
	b.second.Store(second)
}

// take takes one retry out of the budget, if it has one.
func (b *budget) take(now time.Time, percent, perSecond int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	second := int64(now.Sub(b.start) / time.Second)
	b.turn(second)
	oldest := max(0, b.filled-budgetWindow+1)
	requests := b.requests.Load() - b.before[oldest%budgetWindow]
	var retries uint64
	for _, n := range b.retries {
		retries += n
	}
	this := &b.retries[b.filled%budgetWindow]
	if *this >= uint64(perSecond) && (retries+1)*100 > requests*uint64(percent) {
		return false
	}
	*this++
	return true
}
