package upstream

import (
	"container/list"
	"context"
	"sync"

	"portico/resource/fairshare"
)

// limiter bounds the requests in progress and queues some more, first come, first
// served. Users share the slots of both (fairshare.Limit): a waiting request whose user
// has its share is passed over. Safe for concurrent use.
type limiter struct {
	active fairshare.Limit

	mu      sync.Mutex
	length  int // of the queue
	waiting fairshare.Limit
	queue   list.List // of *queued
}

// queued is a request in the queue of a limiter.
type queued struct {
	user  string
	ready chan struct{} // closed when the request has a slot
}

// set replaces the bounds; a limit of 0 is no limit.
func (l *limiter) set(limit, length int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.Set(limit)
	l.waiting.Set(length)
	l.length = length
	l.admit()
}

// enter waits until a request of the user has a slot, or ctx ends. leave must follow if
// it returns nil. waited reports whether the request was queued.
func (l *limiter) enter(ctx context.Context, user string) (waited bool, err error) {
	l.mu.Lock()
	if l.active.Take(user) {
		l.mu.Unlock()
		return false, nil
	}
	if l.length == 0 || !l.waiting.Take(user) {
		defer l.mu.Unlock()
		return false, &OverloadError{Concurrent: l.active.Max(), Queue: l.length}
	}
	q := &queued{user, make(chan struct{})}
	at := l.queue.PushBack(q)
	l.mu.Unlock()
	select {
	case <-q.ready:
		return true, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-q.ready: // at the same time; another request gets the slot
		l.active.Release(user)
		l.admit()
	default:
		l.remove(at)
	}
	return true, context.Cause(ctx)
}

// leave releases the slot of a request that entered.
func (l *limiter) leave(user string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.Release(user)
	l.admit()
}

// remove takes a request out of the queue; mu is held.
func (l *limiter) remove(at *list.Element) {
	l.waiting.Release(l.queue.Remove(at).(*queued).user)
}

// admit gives free slots to waiting requests; mu is held.
func (l *limiter) admit() {
	var refused map[string]bool // users that have their share
	for e := l.queue.Front(); e != nil; {
		at, q := e, e.Value.(*queued)
		e = e.Next()
		switch {
		case refused[q.user]:
		case l.active.Take(q.user):
			close(q.ready)
			l.remove(at)
		default:
			if refused == nil {
				refused = map[string]bool{}
			}
			refused[q.user] = true
		}
	}
}
