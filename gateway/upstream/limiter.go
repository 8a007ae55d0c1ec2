package upstream

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"portico/resource"
	"portico/resource/fairshare"
)

// limiter bounds the requests in progress and queues some more. Users share the slots
// of both (fairshare.Limit). The requests of one user are first in, first out, and
// users take turns. Safe for concurrent use.
type limiter struct {
	active fairshare.Limit

	mu      sync.Mutex
	length  int // of the queue
	waiting fairshare.Limit
	queues  list.List                // of *userQueue, in the order of turns
	byUser  map[string]*list.Element // of queues
}

// userQueue is the waiting requests of one user; never empty.
type userQueue struct {
	user  string
	turns list.List // of chan struct{}, closed when the request has a slot
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
	if l.byUser[user] == nil && l.active.Take(user) {
		l.mu.Unlock()
		return false, nil
	}
	if l.length == 0 || !l.waiting.Take(user) {
		defer l.mu.Unlock()
		return false, &OverloadError{Concurrent: l.active.Max(), Queue: l.length}
	}
	turn := make(chan struct{})
	last := l.push(user, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return true, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // at the same time; another request gets the slot
		l.active.Release(user)
		l.admit()
	default:
		l.remove(l.byUser[user], last)
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

// push adds a request to its user's queue; mu is held.
func (l *limiter) push(user string, turn chan struct{}) *list.Element {
	e := l.byUser[user]
	if e == nil {
		if l.byUser == nil {
			l.byUser = map[string]*list.Element{}
		}
		e = l.queues.PushBack(&userQueue{user: user})
		l.byUser[user] = e
	}
	return e.Value.(*userQueue).turns.PushBack(turn)
}

// remove takes a request out of a queue; mu is held.
func (l *limiter) remove(of, request *list.Element) {
	waits := of.Value.(*userQueue)
	waits.turns.Remove(request)
	l.waiting.Release(waits.user)
	if waits.turns.Len() == 0 {
		l.queues.Remove(of)
		delete(l.byUser, waits.user)
	}
}

// admit gives free slots to waiting requests; mu is held.
func (l *limiter) admit() {
	for e := l.queues.Front(); e != nil; {
		waits := e.Value.(*userQueue)
		if !l.active.Take(waits.user) {
			e = e.Next()
			continue
		}
		first := waits.turns.Front()
		close(first.Value.(chan struct{}))
		l.queues.MoveToBack(e)
		l.remove(e, first)
		e = l.queues.Front()
	}
}

// takesSlot reports whether the request takes a slot of the limit. Requests without a
// deadline take none, except those that only ask for a stream of events: these may be
// answered like any other. A request to leave HTTP takes one if it is not known to be
// long-running.
func (l *retryLoop) takesSlot() bool {
	switch {
	case l.kind == short, l.act != nil && l.act.Streams:
		return true
	}
	return l.kind == upgrade && (l.act == nil || !l.act.LongRunning())
}

// takeSlots takes the slots that the request needs, and waits for one of the limit. On
// an error it holds none.
func (l *retryLoop) takeSlots() error {
	l.user, _ = l.userName() // "" for the gateway's own requests
	if l.limited {
		if err := l.enterLimit(); err != nil {
			return err
		}
	}
	err := l.takeLasting()
	if err != nil && l.limited {
		l.u.limit.leave(l.user)
	}
	return err
}

func (l *retryLoop) enterLimit() error {
	if l.policy.ExemptUnlimited && l.unlimited() {
		l.u.limit.active.Exceed(l.user)
		return nil
	}
	started := time.Now()
	waited, err := l.u.limit.enter(l.client(), l.user)
	if waited && l.trace != nil {
		l.trace.setQueued(time.Since(started))
	}
	var overload *OverloadError
	if errors.As(err, &overload) {
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
		l.u.lasting.Exceed(l.user)
	} else if !l.u.lasting.Take(l.user) {
		l.u.overflowed.Add(1)
		return &OverloadError{Concurrent: l.u.lasting.Max()}
	}
	l.alone = true
	return nil
}

// unlimited reports whether the user has no limits.
func (l *retryLoop) unlimited() bool {
	return l.act != nil && l.act.User != nil && l.act.User.Unlimited()
}

// multiplexes reports whether long-running requests share connections at every
// endpoint, as far as is known.
func (b *balancer) multiplexes() bool {
	if b.only != nil {
		return b.only.transport.Multiplexes()
	}
	for i := range b.List {
		if !b.List[i].Endpoint.transport.Multiplexes() {
			return false
		}
	}
	return true
}

// releaseSlots releases the slots of a request without an answer.
func (l *retryLoop) releaseSlots() {
	if l.limited {
		l.u.limit.leave(l.user)
	}
	if l.alone {
		l.u.lasting.Release(l.user)
	}
}

// keepSlots lets the answer hold the slots until its end. A connection that has left
// HTTP, or a stream of events, may last and holds no slot of the limit.
func (l *retryLoop) keepSlots(res *http.Response) {
	body, _ := res.Body.(*answer)
	if l.alone {
		if t, ok := res.Body.(*tunnel); ok {
			t.holdLasting()
		} else if body != nil {
			body.holdLasting()
		} else {
			l.u.lasting.Release(l.user)
		}
	}
	switch {
	case !l.limited:
	case body != nil && !(l.kind == long && resource.IsEventStream(res.Header)):
		body.holdLimit()
	default:
		l.u.limit.leave(l.user)
	}
}
