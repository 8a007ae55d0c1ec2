package fairshare

import (
	"sync/atomic"
	"time"
)

// Waiter is a request that waits for its client, and holds slots of one or more Limits
// meanwhile. Its fields are set before the first Enter.
type Waiter struct {
	// User is the user of the slots.
	User string
	// End ends the request, of which a Limit has taken the slots back. Several Limits may call it,
	// from any goroutine, and it must not wait for the request.
	End func()

	progress atomic.Int64 // when Progress was called last, in nanoseconds of Unix time; 0: before Enter
}

// Progress records that the client has sent or taken something.
func (w *Waiter) Progress() { w.progress.Store(time.Now().UnixNano()) }

// Enter takes n slots for w and reports whether there were as many, or enough could be taken
// back from other Waiters. Leave must follow, whatever it returns.
func (l *Limit) Enter(w *Waiter, n int) bool {
	w.progress.CompareAndSwap(0, time.Now().UnixNano())
	for {
		ended, ok := l.tryEnter(w, n)
		if ended == nil {
			return ok
		}
		ended.End()
	}
}

// tryEnter takes n slots for w if they are free. Else it takes the slots of another Waiter back, and returns that.
func (l *Limit) tryEnter(w *Waiter, n int) (ended *Waiter, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.max == 0 || n <= l.max-l.inUse {
		if l.waiters == nil {
			l.waiters = map[*Waiter]int{}
		}
		l.waiters[w] += n
		l.add(w.User, n)
		return nil, true
	}
	if n > l.max {
		return nil, false
	}
	if ended = l.replaceable(w, l.held[w.User]+n); ended != nil {
		l.remove(ended)
	}
	return ended, false
}

// replaceable returns the Waiter that is ended for w, or nil if there is none. would is the number of slots
// that the user of w would hold. l.mu is held.
func (l *Limit) replaceable(w *Waiter, would int) (found *Waiter) {
	stalled := time.Now().Add(-stallTime).UnixNano()
	var most int
	var since int64
	for other := range l.waiters {
		held, progress := l.held[other.User], other.progress.Load()
		if other == w || held <= would && progress > stalled {
			continue
		}
		if found == nil || held > most || held == most && progress < since {
			found, most, since = other, held, progress
		}
	}
	return found
}

// remove returns the slots of w. l.mu is held.
func (l *Limit) remove(w *Waiter) {
	l.add(w.User, -l.waiters[w])
	delete(l.waiters, w)
}

// Leave returns the slots that w has.
func (l *Limit) Leave(w *Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(w)
}
