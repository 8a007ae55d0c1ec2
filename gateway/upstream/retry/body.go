package retry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"

	"portico/gateway/upstream/transport"
	"portico/resource/rest/body"
)

// MaxKeptBody is how large the body of a request may be, in bytes, to be kept so that
// it can be sent again.
const MaxKeptBody = body.MaxSmall

// errMoved ends reads of a body that is sent to another endpoint instead.
var errMoved = errors.New("the request is sent to another endpoint")

// BodyError is a client's fault: the body of its request could not be read.
type BodyError struct{ Err error }

func (e *BodyError) Error() string { return fmt.Sprintf("read the request's body: %v", e.Err) }
func (e *BodyError) Unwrap() error { return e.Err }

// Body is the body of a request that may be sent several times. A small one is kept, and one
// with GetBody is in memory; another can be sent again until an attempt has read from it.
type Body struct {
	req    *http.Request
	again  func() (io.ReadCloser, error) // returns what is kept; nil: nothing is
	stream *Stream                       // as the last attempt sends it, if it is not kept
}

// NewBody returns the body of a request.
func NewBody(req *http.Request) Body { return Body{req: req} }

// Keep reads a small body that the gateway has not read yet, so that a slow client holds no connection. The body of a
// request with Expect is not kept: its client waits to be asked for it (RFC 9110,
// 10.1.1). The error is a BodyError.
func (b *Body) Keep() error {
	if b.again = b.req.GetBody; b.again != nil {
		return nil
	}
	if !transport.HasBody(b.req) || !body.Small(b.req) {
		return nil
	}
	kept := make([]byte, b.req.ContentLength)
	if _, err := io.ReadFull(b.req.Body, kept); err != nil {
		return &BodyError{err}
	}
	b.again = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(kept)), nil }
	_ = b.req.Body.Close()
	return nil
}

// Open gives out, the request of the next attempt, its body. ended, if not nil, is
// called when the client has sent all of it. The Stream is nil if there is no body or it
// is kept.
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
