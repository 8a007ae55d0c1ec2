package upstream

import (
	"container/list"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource"
)

// OverloadError is of a request that came when as many were under way to the
// server as may be, and as many waited: nothing was sent.
type OverloadError struct{ Concurrent, Queue int }

func (e *OverloadError) Error() string {
	return "too many requests to the server are under way, please try again later"
}

// limiter bounds how many requests are under way, and has some more wait in the
// order they came. What waits is a request that has been read up to its body,
// and a channel.
//
// Safe for concurrent use.
type limiter struct {
	limit, length atomic.Int64 // limit 0: none
	active        atomic.Int64
	waiting       atomic.Int64

	mu    sync.Mutex
	queue list.List // of chan struct{}, closed when it is their turn
}

func (l *limiter) set(limit, length int) {
	l.limit.Store(int64(limit))
	l.length.Store(int64(length))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.admit()
}

// enter waits until the request may be sent, or ctx ends. leave must follow if
// it returns nil. waited tells whether there was a queue.
func (l *limiter) enter(ctx context.Context) (waited bool, err error) {
	if l.waiting.Load() == 0 && l.tryEnter() {
		return false, nil
	}
	turn := make(chan struct{})
	l.mu.Lock()
	if n := l.length.Load(); l.waiting.Load() >= n {
		// There may have come room since.
		if l.waiting.Load() == 0 && l.tryEnter() {
			l.mu.Unlock()
			return false, nil
		}
		l.mu.Unlock()
		return false, &OverloadError{Concurrent: int(l.limit.Load()), Queue: int(n)}
	}
	place := l.queue.PushBack(turn)
	l.waiting.Add(1)
	l.admit()
	l.mu.Unlock()
	select {
	case <-turn:
		return true, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // at the same time; it is the next one's
		l.active.Add(-1)
		l.admit()
	default:
		l.queue.Remove(place)
		l.waiting.Add(-1)
	}
	return true, context.Cause(ctx)
}

func (l *limiter) tryEnter() bool {
	limit := l.limit.Load()
	if limit == 0 {
		l.active.Add(1)
		return true
	}
	for {
		n := l.active.Load()
		if n >= limit {
			return false
		}
		if l.active.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// leave is the end of a request that entered.
func (l *limiter) leave() {
	l.active.Add(-1)
	if l.waiting.Load() > 0 {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.admit()
	}
}

// admit lets those enter for whom there is room; mu is held.
func (l *limiter) admit() {
	for l.queue.Len() > 0 && l.tryEnter() {
		first := l.queue.Front()
		l.queue.Remove(first)
		l.waiting.Add(-1)
		close(first.Value.(chan struct{}))
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

// enter waits for a place.
func (s *sending) enter() error {
	var started time.Time
	if s.trace != nil {
		started = time.Now()
	}
	waited, err := s.u.limit.enter(s.req.Context())
	if waited && s.trace != nil {
		s.trace.wait(time.Since(started))
	}
	var overload *OverloadError
	if errors.As(err, &overload) {
		s.u.overflowed.Add(1)
	}
	return err
}

// claim has the answer that is given hold the place in the limit until its end.
// What has left HTTP, or is a stream of events, lasts as long as it likes, and
// holds none.
func (s *sending) claim(res *http.Response) {
	if !s.limited {
		return
	}
	if a, ok := res.Body.(*answer); ok && !(s.kind == long && resource.IsEventStream(res.Header)) {
		a.limit(s.u)
	} else {
		s.u.limit.leave()
	}
}
