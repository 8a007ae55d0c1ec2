package health

import "sync/atomic"

// Breaker counts consecutive failures. The zero value has none. Safe for concurrent use.
type Breaker struct{ failures atomic.Int32 }

// Failed counts a failure and reports whether limit in a row failed; 0 is no limit.
func (b *Breaker) Failed(limit int) bool { return int(b.failures.Add(1)) >= limit && limit > 0 }

// Good resets the failures. It reads before it writes, because it is called for almost
// every request.
func (b *Breaker) Good() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}
