package upstream

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// answer is the body of a response. It is for one goroutine, except that Close may be
// called by another.
type answer struct {
	io.ReadCloser
	u      *Upstream
	e      *endpoint
	client context.Context
	cancel context.CancelCauseFunc // nil: nothing is to be released
	kind   kind
	state  atomic.Int32
	user   string // that holds its slots

	// in is the list that it is in; nil: none. It does not change; the links are guarded
	// by it.
	in         *answers
	prev, next *answer
	listed     bool

	judges bool // its end says that the endpoint's connections are good
	// stream is the body of the request; nil: there was none, or it was kept. A server
	// may end its answer because that ends.
	stream *streamed
}

// States of an answer.
const (
	holdsLimit   = 1 << iota // it holds a slot of Upstream.limit
	finished                 // it has ended
	drainedAway              // it was ended because its endpoint drains
	holdsLasting             // it holds a slot of Upstream.lasting
)

// holdLimit lets the answer hold a slot of Upstream.limit until it ends.
func (a *answer) holdLimit() {
	if a.state.Or(holdsLimit)&finished != 0 {
		a.u.limit.leave(a.user)
	}
}

// holdLasting lets the answer hold a slot of Upstream.lasting until it ends.
func (a *answer) holdLasting() {
	if a.state.Or(holdsLasting)&finished != 0 {
		a.u.lasting.Release(a.user)
	}
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		if a.state.Load()&drainedAway != 0 {
			err = io.EOF
		}
		a.finish(err)
	}
	return n, err
}

func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	a.finish(nil)
	return err
}

// finish is the end of the request; err is that of reading the answer. The end of a
// long-running answer says nothing about the endpoint.
func (a *answer) finish(err error) {
	before := a.state.Or(finished)
	if before&finished != 0 {
		return
	}
	if a.in != nil {
		a.in.remove(a)
	}
	if err == io.EOF && a.judges {
		a.e.breaker.ConnectionGood()
	} else if err != nil && a.kind == short && a.client.Err() == nil && !a.stream.broke() {
		a.u.failedLocally(a.e, err)
	}
	a.e.end(a.kind)
	if a.cancel != nil {
		a.cancel(nil)
	}
	if before&holdsLimit != 0 {
		a.u.limit.leave(a.user)
	}
	if before&holdsLasting != 0 {
		a.u.lasting.Release(a.user)
	}
}

// answers is a list of answers in progress of an endpoint. The zero value is empty.
type answers struct {
	mu   sync.Mutex
	head *answer
	size int
}

func (s *answers) add(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.next = s.head; a.next != nil {
		a.next.prev = a
	}
	s.head, a.listed = a, true
	s.size++
}

func (s *answers) remove(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlink(a)
}

// unlink removes an answer; mu is held.
func (s *answers) unlink(a *answer) {
	if !a.listed {
		return
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		s.head = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	a.prev, a.next, a.listed = nil, nil, false
	s.size--
}

func (s *answers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// end ends n of them in order: readers get io.EOF.
func (s *answers) end(n int) {
	for ; n > 0; n-- {
		s.mu.Lock()
		a := s.head
		if a != nil {
			s.unlink(a)
		}
		s.mu.Unlock()
		if a == nil {
			return
		}
		a.state.Or(drainedAway)
		_ = a.ReadCloser.Close()
	}
}

// HalfOpen is how long one direction of a connection that has left HTTP may continue
// after the other has ended. A peer that only ended its direction still gets an answer;
// one that is gone looks the same, and would hold the connection for ever.
const HalfOpen = 10 * time.Second

// tunnel is a connection that has left HTTP.
type tunnel struct {
	*answer
	w io.Writer
}

func (t *tunnel) Write(p []byte) (int, error) { return t.w.Write(p) }

// CloseWrite ends one direction, where the connection supports that, and the other
// after HalfOpen.
func (t *tunnel) CloseWrite() error {
	time.AfterFunc(HalfOpen, func() { _ = t.Close() })
	if half, ok := t.w.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
