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

// OverloadError is of a request that came when as many were under way to the
// server as may be, and as many waited: nothing was sent.
type OverloadError struct{ Concurrent, Queue int }

func (e *OverloadError) Error() string {
	return "too many requests to the server are under way, please try again later"
}

// limiter bounds how many requests are under way and has some more wait. Users share
// the places of both (fairshare.Limit). The requests of one user wait in the order they
// came, and users take turns. What waits is a request that has been read up to its
// body, and a channel.
//
// Safe for concurrent use.
type limiter struct {
	active fairshare.Limit

	mu      sync.Mutex
	length  int // how many may wait
	waiting fairshare.Limit
	queues  list.List                // of *userQueue, the next to be served first
	byUser  map[string]*list.Element // of queues
}

// userQueue is the requests of one user that wait; never empty.
type userQueue struct {
	user  string
	turns list.List // of chan struct{}, closed when the request may be sent
}

// set replaces the bounds; a limit of 0 is none.
func (l *limiter) set(limit, length int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active.Set(limit)
	l.waiting.Set(length)
	l.length = length
	l.admit()
}

// enter waits until the request of a user may be sent, or ctx ends. leave must follow
// if it returns nil. waited reports whether there was a queue.
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
	case <-turn: // at the same time; another request gets the place
		l.active.Release(user)
		l.admit()
	default:
		l.remove(l.byUser[user], last)
	}
	return true, context.Cause(ctx)
}

// leave is the end of a request that entered.
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

// admit lets requests enter for which there is a place; mu is held.
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

// takesPlace reports whether a request takes a place. What has no deadline takes
// none, whatever protocol it goes on in. One that only asks for another protocol,
// or says that it takes a stream, may be answered like any.
func takesPlace(req *http.Request, k kind) bool {
	if k == short {
		return true
	}
	act := resource.ActionFrom(req.Context())
	if act != nil && act.Streams {
		return true
	}
	return k == upgrade && (act == nil || !act.LongRunning())
}

// holder returns the name of the user that holds the place of a request, "" for a
// request of the gateway's own, and whether it gets one although there is none.
func holder(req *http.Request, policy *Policy) (user string, exempt bool) {
	act := resource.ActionFrom(req.Context())
	if act == nil || act.User == nil {
		return "", false
	}
	return act.User.Name, policy.ExemptUnlimited && act.User.Unlimited()
}

// enter waits for a place.
func (s *sending) enter() error {
	var started time.Time
	if s.trace != nil {
		started = time.Now()
	}
	var exempt bool
	if s.user, exempt = holder(s.req, s.policy); exempt {
		s.u.limit.active.Exceed(s.user)
		return nil
	}
	waited, err := s.u.limit.enter(s.req.Context(), s.user)
	if waited && s.trace != nil {
		s.trace.wait(time.Since(started))
	}
	var overload *OverloadError
	if errors.As(err, &overload) {
		s.u.overflowed.Add(1)
	}
	return err
}

// enterAlone takes a place for a connection of the request's own, if it is to have one:
// such a request may last, and the descriptors for it are few.
func (s *sending) enterAlone() error {
	if s.u.lasting == nil || s.kind == short || s.kind == long && s.p.share() {
		return nil
	}
	user, _ := holder(s.req, s.policy)
	if act := resource.ActionFrom(s.req.Context()); act == nil || act.User == nil || act.User.Unlimited() {
		s.u.lasting.Exceed(user)
	} else if !s.u.lasting.Take(user) {
		s.u.overflowed.Add(1)
		return &OverloadError{Concurrent: s.u.lasting.Max()}
	}
	s.user, s.alone = user, true
	return nil
}

// claimAlone has the answer hold that place until its end.
func (s *sending) claimAlone(res *http.Response) {
	switch body := res.Body.(type) {
	case *answer:
		body.holdAlone()
	case *tunnel:
		body.holdAlone()
	default:
		s.u.lasting.Release(s.user)
	}
}

// share reports whether long-running requests share connections at every endpoint, as
// far as is known.
func (p *picks) share() bool {
	if p.only != nil {
		return p.only.ways.share()
	}
	for i := range p.list {
		if !p.list[i].ways.share() {
			return false
		}
	}
	return true
}

// share reports whether long-running requests share connections; before the first
// connection it is not known, and they are expected to.
func (w *ways) share() bool {
	g := w.current.Load()
	return g == nil || g.shared != nil && !g.shared.none.Load()
}

// claim has the answer that is given hold the place in the limit until its end.
// What has left HTTP, or is a stream of events, lasts as long as it likes, and
// holds none.
func (s *sending) claim(res *http.Response) {
	if s.alone {
		s.claimAlone(res)
	}
	if !s.limited {
		return
	}
	if a, ok := res.Body.(*answer); ok && !(s.kind == long && resource.IsEventStream(res.Header)) {
		a.limit()
	} else {
		s.u.limit.leave(s.user)
	}
}
