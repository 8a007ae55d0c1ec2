package upstream

import (
	"container/list"
	"context"
	"net/http"
	"sync"
	"time"

	"portico/resource"
	"portico/resource/fairshare"
)

// limiter bounds the requests in progress and queues some more, first come, first
// served. Users share the slots of both (fairshare.Limit.Take): waiting requests of a user
// that has its share are skipped. Nothing in progress is ended for another request, since a server
// may be at work for it. Safe for concurrent use.
type limiter struct {
	active fairshare.Limit

	mu      sync.Mutex
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
	if l.waiting.Max() == 0 || !l.waiting.Take(user) {
		defer l.mu.Unlock()
		return false, &OverloadError{}
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

// slots are what a request holds of the limits of its server.
type slots struct {
	u       *Upstream
	user    string // "" for the gateway's own requests
	limit   bool   // a slot of Upstream.limit
	lasting bool   // a slot of Upstream.lasting
}

func (s *slots) releaseLimit() {
	if s.limit {
		s.u.limit.leave(s.user)
		s.limit = false
	}
}

func (s *slots) release() {
	s.releaseLimit()
	if s.lasting {
		s.u.lasting.Release(s.user)
		s.lasting = false
	}
}

// isLimited reports whether the request takes a slot of the limit. Requests without a
// deadline take none, except those that only ask for a stream of events: these may be
// answered like any other. A request to leave HTTP takes one if it is not known to be
// long-running.
func (l *retryLoop) isLimited() bool {
	switch {
	case l.kind == short, l.act != nil && l.act.Streams:
		return true
	}
	return l.kind == upgrade && (l.act == nil || !l.act.LongRunning())
}

// takeSlots takes the slots that the request needs, and waits for one of the limit. On
// an error it holds none.
func (l *retryLoop) takeSlots() error {
	l.slots.u = l.u
	if l.act != nil {
		l.slots.user = l.act.LimitKey()
	}
	if l.limited {
		if err := l.enterLimit(); err != nil {
			return err
		}
		l.slots.limit = true
	}
	if err := l.takeLasting(); err != nil {
		l.slots.release()
		return err
	}
	return nil
}

func (l *retryLoop) enterLimit() error {
	if l.policy.ExemptUnlimited && l.unlimited() {
		l.u.limit.active.Exceed(l.slots.user)
		return nil
	}
	started := time.Now()
	waited, err := l.u.limit.enter(l.client(), l.slots.user)
	if waited && l.trace != nil {
		l.trace.setQueued(time.Since(started))
	}
	if is[*OverloadError](err) {
		l.u.overflowed.Add(1)
	}
	return err
}

// takeLasting takes a slot of Upstream.lasting if the request may last and has a
// connection of its own: file descriptors are few.
func (l *retryLoop) takeLasting() error {
	if l.u.lasting == nil || l.kind == short || l.kind == long && l.b.multiplexes() {
		return nil
	}
	if l.act == nil || l.act.User == nil || l.unlimited() {
		l.u.lasting.Exceed(l.slots.user)
	} else if !l.u.lasting.Take(l.slots.user) {
		l.u.overflowed.Add(1)
		return &OverloadError{}
	}
	l.slots.lasting = true
	return nil
}

// unlimited reports whether the user has no limits.
func (l *retryLoop) unlimited() bool {
	return l.act != nil && l.act.User != nil && l.act.User.Unlimited()
}

// keepSlots lets the answer hold the slots until its end. A connection that has left
// HTTP, or a stream of events, may last and holds no slot of the limit.
func (l *retryLoop) keepSlots(res *http.Response) {
	switch body := res.Body.(type) {
	case *tunnel:
		l.slots.releaseLimit()
		body.hold(l.slots)
	case *answer:
		if l.kind == long && resource.IsEventStream(res.Header) {
			l.slots.releaseLimit()
		}
		body.hold(l.slots)
	default: // there is no body
		l.slots.release()
	}
}
