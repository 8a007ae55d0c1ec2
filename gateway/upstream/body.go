package upstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// keptBody is how large the body of a request may be, in bytes, to be kept so
// that it can be sent again.
const keptBody = 64 << 10

// errMoved ends reads of a body that is sent to another endpoint instead.
var errMoved = errors.New("the request is sent to another endpoint")

// hasBody reports whether a request has a body.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// keepBody reads the body of a request if it is small enough to be kept, and
// not one that the client wants to be asked for.
func keepBody(req *http.Request) (kept []byte, ok bool, err error) {
	if req.ContentLength <= 0 || req.ContentLength > keptBody || req.Header["Expect"] != nil {
		return nil, false, nil
	}
	kept = make([]byte, req.ContentLength)
	if _, err := io.ReadFull(req.Body, kept); err != nil {
		return nil, false, &BodyError{err}
	}
	_ = req.Body.Close()
	return kept, true, nil
}

// again is a kept body, from its beginning.
func again(kept []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(kept)) }

// streamed is a body that goes to one endpoint as it comes. As long as nobody
// has read of it, it can go to another instead.
type streamed struct {
	src   io.ReadCloser
	state atomic.Int32
	// ended is called at the end of the body, if not nil.
	ended  func()
	failed atomic.Pointer[error] // the client's
	closed atomic.Bool
}

// What became of a streamed body.
const (
	untouched = iota
	touched
	moved
)

func (b *streamed) Read(p []byte) (int, error) {
	if !b.state.CompareAndSwap(untouched, touched) && b.state.Load() == moved {
		return 0, errMoved
	}
	n, err := b.src.Read(p)
	switch {
	case err == io.EOF:
		if b.ended != nil {
			b.ended()
		}
	case err != nil && !b.closed.Load():
		b.failed.Store(&err)
	}
	return n, err
}

// Close ends a body that was read; another may still need one that was not. What is
// being read ends with an error then, which is not the client's.
func (b *streamed) Close() error {
	b.closed.Store(true)
	if b.state.Load() == touched {
		return b.src.Close()
	}
	return nil
}

// move takes the body away, if nobody has read of it.
func (b *streamed) move() bool { return b.state.CompareAndSwap(untouched, moved) }

// broke reports whether the client broke the body off. A nil one was not.
func (b *streamed) broke() bool { return b != nil && b.failed.Load() != nil }

// answer is the body of a response. It is for one goroutine, except that Close
// may be called by another.
type answer struct {
	io.ReadCloser
	u      *Upstream
	e      *endpoint
	client context.Context
	cancel context.CancelCauseFunc // nil: there is nothing to be let go of
	kind   kind
	state  atomic.Int32
	user   string // that holds its places

	// Of the streams that it is one of, and guarded by them; in does not change,
	// nil: of none.
	prev, next *answer
	listed     bool
	in         *streams

	judges bool // its end says that the endpoint's connections are well
	// stream is the body of the request, nil: it was sent whole. The answer of a
	// server may end because that does.
	stream *streamed
}

// States of an answer.
const (
	limited     = 1 << iota // it holds a place in the limit
	finished                // it has ended
	drainedAway             // it was ended because its endpoint goes
	alone                   // it holds a place among Upstream.lasting
)

// limit has the answer give its place in the limit back when it ends.
func (a *answer) limit() {
	if a.state.Or(limited)&finished != 0 {
		a.u.limit.leave(a.user)
	}
}

// holdAlone has the answer give its place among Upstream.lasting back when it ends.
func (a *answer) holdAlone() {
	if a.state.Or(alone)&finished != 0 {
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

// Close gives up what was not read.
func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	a.finish(nil)
	return err
}

// finish is the end of the request; err is that of reading the answer. That of a
// watch may end as its server likes, for all the good it says of it.
func (a *answer) finish(err error) {
	before := a.state.Or(finished)
	if before&finished != 0 {
		return
	}
	if a.in != nil {
		a.in.remove(a)
	}
	if err == io.EOF && a.judges {
		a.e.settle()
	} else if err != nil && a.kind == short && a.client.Err() == nil && !a.stream.broke() {
		a.u.failedLocally(a.e, err)
	}
	a.e.end(a.kind)
	if a.cancel != nil {
		a.cancel(nil)
	}
	if before&limited != 0 {
		a.u.limit.leave(a.user)
	}
	if before&alone != 0 {
		a.u.lasting.Release(a.user)
	}
}

// settle ends a series of connections that failed.
func (e *endpoint) settle() {
	if e.badConns.Load() != 0 {
		e.badConns.Store(0)
	}
}

// HalfOpen is how long one end of a connection that has left HTTP may go on after
// the other has ended. Who only closed one direction still gets an answer; who is
// gone looks the same, and an end that never finds out would keep everything that
// the connection takes.
const HalfOpen = 10 * time.Second

// tunnel is a connection that has left HTTP.
type tunnel struct {
	*answer
	w io.Writer
}

func (t *tunnel) Write(p []byte) (int, error) { return t.w.Write(p) }

// CloseWrite ends one direction, where the connection can do that; and the other
// after HalfOpen.
func (t *tunnel) CloseWrite() error {
	time.AfterFunc(HalfOpen, func() { _ = t.Close() })
	if half, ok := t.w.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
