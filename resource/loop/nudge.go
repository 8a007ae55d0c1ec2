package loop

import "sync"

// Nudge wakes one loop for any number of reasons: pokes that come before the
// loop looks become one. The zero Nudge is ready; it must not be copied.
// It is safe for concurrent use.
type Nudge struct {
	once sync.Once
	ch   chan struct{}
}

// NewNudge returns a Nudge.
func NewNudge() *Nudge { return &Nudge{} }

// Poke has the next, or the current, receive from C succeed. It never blocks.
func (n *Nudge) Poke() {
	select {
	case n.channel() <- struct{}{}:
	default:
	}
}

// C receives once after any number of pokes.
func (n *Nudge) C() <-chan struct{} { return n.channel() }

func (n *Nudge) channel() chan struct{} {
	n.once.Do(func() { n.ch = make(chan struct{}, 1) })
	return n.ch
}
