package upstream

import (
	"bytes"
	"io"
	"net/http"
	"sync/atomic"
)

// maxKeptBody is how large the body of a request may be, in bytes, to be kept so that
// it can be sent again.
const maxKeptBody = 64 << 10

// hasBody reports whether a request has a body.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// keepBody reads the body of a request if it is small, and the client does not want to
// be asked for it (RFC 9110, 10.1.1).
func keepBody(req *http.Request) (kept []byte, ok bool, err error) {
	if req.ContentLength <= 0 || req.ContentLength > maxKeptBody || req.Header["Expect"] != nil {
		return nil, false, nil
	}
	kept = make([]byte, req.ContentLength)
	if _, err := io.ReadFull(req.Body, kept); err != nil {
		return nil, false, &BodyError{err}
	}
	_ = req.Body.Close()
	return kept, true, nil
}

// newKeptBody returns a kept body, from its beginning.
func newKeptBody(kept []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(kept)) }

// streamed is a body that is sent while it is read. Until it is read, it can go to
// another endpoint instead. Close may be called concurrently with Read.
type streamed struct {
	src   io.ReadCloser
	state atomic.Int32
	// ended, if not nil, is called at the end of the body.
	ended  func()
	failed atomic.Pointer[error] // the client's
	closed atomic.Bool
}

// States of a streamed body.
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

// Close closes the body if it was read; another attempt may need it otherwise. A Read
// in progress then fails with an error that is not the client's.
func (b *streamed) Close() error {
	b.closed.Store(true)
	if b.state.Load() == touched {
		return b.src.Close()
	}
	return nil
}

// move takes the body away, and reports whether it has not been read.
func (b *streamed) move() bool { return b.state.CompareAndSwap(untouched, moved) }

// broke reports whether the client failed to send the body. A nil one did not.
func (b *streamed) broke() bool { return b != nil && b.failed.Load() != nil }
