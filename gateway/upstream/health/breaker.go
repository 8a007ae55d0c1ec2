// Package health keeps the passive part of an endpoint's health: the failures of
// requests in a row that eject it, and how long an ejection lasts.
//
// Runs in: gateway.
package health

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Breaker counts the failures of an endpoint in a row: of connections, and of answers,
// to which those count that did not begin in time. The zero value has none. It is safe
// for concurrent use.
type Breaker struct{ answers, connections atomic.Int32 }

// AnswerFailed counts a bad answer and reports whether there were limit in a row; 0 is
// no limit.
func (b *Breaker) AnswerFailed(limit int) bool { return reached(&b.answers, limit) }

// ConnectionFailed counts a connection that failed or broke and reports whether there
// were limit in a row; 0 is no limit.
func (b *Breaker) ConnectionFailed(limit int) bool { return reached(&b.connections, limit) }

func reached(n *atomic.Int32, limit int) bool { return int(n.Add(1)) >= limit && limit > 0 }

// AnswerGood ends a row of bad answers.
func (b *Breaker) AnswerGood() { reset(&b.answers) }

// ConnectionGood ends a row of failed connections.
func (b *Breaker) ConnectionGood() { reset(&b.connections) }

// Reset ends both rows.
func (b *Breaker) Reset() { b.AnswerGood(); b.ConnectionGood() }

// reset reads before it writes, because it is called for almost every request.
func reset(n *atomic.Int32) {
	if n.Load() != 0 {
		n.Store(0)
	}
}

const (
	// forgivenAfter is how long an endpoint must get requests without an ejection for
	// one ejection less of it to count: Envoy's interval.
	forgivenAfter = 10 * time.Second
	// jitterDivisor: an ejection is longer by up to this part of its base, so that
	// gateways that ejected an endpoint together do not use it again together.
	jitterDivisor = 10
)

// History is how often an endpoint was ejected lately. It is not safe for concurrent
// use.
type History struct {
	times int
	ended time.Time
}

// Ended records the end of an ejection.
func (h *History) Ended() { h.ended = time.Now() }

// First reports whether the ejection that was begun last is the only one lately.
func (h *History) First() bool { return h.times <= 1 }

// Begin counts an ejection and returns how long it is: base times the ejections lately,
// up to most, and some jitter. Each forgivenAfter without one takes one back, counted
// from the end of the last.
func (h *History) Begin(base, most time.Duration) time.Duration {
	if !h.ended.IsZero() {
		h.times = max(0, h.times-int(time.Since(h.ended)/forgivenAfter))
	}
	if base*time.Duration(h.times) < most { // more would only take longer to be forgiven
		h.times++
	}
	return min(base*time.Duration(h.times), most) + rand.N(base/jitterDivisor+1)
}
