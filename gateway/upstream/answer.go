package upstream

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// answer is the body of a response. It is used by one goroutine, except that Close may
// be called concurrently with Read.
type answer struct {
	io.ReadCloser
	attempt *attempt
	in      *sync.Map // the set that it is in; nil: none

	drained atomic.Bool // it was ended because its endpoint drains

	mu       sync.Mutex
	finished bool
	slots    slots
}

// hold takes over the slots of the request until the answer ends.
func (a *answer) hold(s slots) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.finished {
		s.release()
	} else {
		a.slots = s
	}
}

func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil {
		if a.drained.Load() {
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

// drain ends the answer: its reader gets io.EOF.
func (a *answer) drain() {
	a.drained.Store(true)
	_ = a.ReadCloser.Close()
}

// finish is the end of the request; err is that of reading the answer. The end of a
// long-running answer says nothing about the endpoint.
func (a *answer) finish(err error) {
	a.mu.Lock()
	was := a.finished
	a.finished = true
	a.mu.Unlock()
	if was {
		return
	}
	if a.in != nil {
		a.in.Delete(a)
	}
	t := a.attempt
	if err == io.EOF && t.pinned == nil {
		t.e.health.Connections.Good()
	} else if err != nil && t.kind == short && t.client().Err() == nil && t.stream.Err() == nil {
		t.u.connectionFailed(t.e, err) // unless the server ended its answer because the request's body broke off
	}
	t.e.end(t.kind)
	if t.cancel != nil {
		t.cancel(nil)
	}
	a.slots.release()
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
