package health

import "sync/atomic"

// Breaker counts consecutive failures of an endpoint: of connections, and of answers,
// which include those that did not begin in time. The zero value has none. Safe for
// concurrent use.
type Breaker struct{ answers, connections atomic.Int32 }

// AnswerFailed counts a failed answer and reports whether limit in a row failed; 0 is
// no limit.
func (b *Breaker) AnswerFailed(limit int) bool { return reached(&b.answers, limit) }

// ConnectionFailed counts a connection that failed or broke and reports whether limit
// in a row did; 0 is no limit.
func (b *Breaker) ConnectionFailed(limit int) bool { return reached(&b.connections, limit) }

func reached(n *atomic.Int32, limit int) bool { return int(n.Add(1)) >= limit && limit > 0 }

// AnswerGood resets the failed answers.
func (b *Breaker) AnswerGood() { reset(&b.answers) }

// ConnectionGood resets the failed connections.
func (b *Breaker) ConnectionGood() { reset(&b.connections) }

// Reset resets both.
func (b *Breaker) Reset() { b.AnswerGood(); b.ConnectionGood() }

// reset reads before it writes, because it is called for almost every request.
func reset(n *atomic.Int32) {
	if n.Load() != 0 {
		n.Store(0)
	}
}
