package retry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"portico/gateway/upstream/transport"
)

// errMoved ends reads of a body that is sent to another endpoint instead.
var errMoved = errors.New("the request is sent to another endpoint")

// BodyError is a client's fault: the body of its request could not be read.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return fmt.Sprintf("read the request's body: %v", e.Err) }
func (e *BodyError) Unwrap() error { return e.Err }

// Body is the body of a request that may be sent several times. One with GetBody is in memory; another can be sent again
// until an attempt has read from it.
type Body struct {
	req    *http.Request
	again  func() (io.ReadCloser, error) // GetBody of req
	stream *Stream                       // as the last attempt sends it, without GetBody
}

// NewBody returns the body of a request. The gateway has read a small one (package filter).
func NewBody(req *http.Request) Body { return Body{req: req, again: req.GetBody} }

// Open gives out, the request of the next attempt, its body. ended, if not nil, is
// called when the client has sent all of it. The Stream is nil if there is no body or it
// is in memory.
func (b *Body) Open(out *http.Request, ended func()) *Stream {
	if transport.HasBody(b.req) && b.again == nil {
		b.stream = &Stream{src: b.req.Body, ended: ended}
		out.Body = b.stream
		return b.stream
	}
	if b.again != nil {
		out.Body, _ = b.again() // never fails for what is in memory
		out.GetBody = nil
	}
	if ended != nil {
		ended()
	}
	return nil
}

// Repeatable reports whether the body can be sent again from its beginning. If so, the
// attempt before reads no more of it.
func (b *Body) Repeatable() bool {
	return !transport.HasBody(b.req) || b.again != nil || b.stream != nil && b.stream.state.CompareAndSwap(unread, moved)
}

// Close closes the client's body.
func (b *Body) Close() {
	if b.req.Body != nil {
		_ = b.req.Body.Close()
	}
}

// Stream is a body that is sent while it is read. Close may be called concurrently with
// Read.
type Stream struct {
	src    io.ReadCloser
	state  atomic.Int32
	ended  func()
	failed atomic.Pointer[error] // the client's
	closed atomic.Bool
}

// States of a Stream.
const (
	unread = iota
	read
	moved // to another attempt
)

func (s *Stream) Read(p []byte) (int, error) {
	if !s.state.CompareAndSwap(unread, read) && s.state.Load() == moved {
		return 0, errMoved
	}
	n, err := s.src.Read(p)
	switch {
	case err == io.EOF:
		if s.ended != nil {
			s.ended()
		}
	case err != nil && !s.closed.Load():
		s.failed.Store(&err)
	}
	return n, err
}

// Close closes the body if it was read; another attempt may need it otherwise. A Read
// in progress then fails with an error that is not the client's.
func (s *Stream) Close() error {
	s.closed.Store(true)
	if s.state.Load() == read {
		return s.src.Close()
	}
	return nil
}

// Err returns a BodyError if the client failed to send the body; nil if it did not, or
// the Stream is nil.
func (s *Stream) Err() error {
	if s == nil || s.failed.Load() == nil {
		return nil
	}
	return &BodyError{*s.failed.Load()}
}
