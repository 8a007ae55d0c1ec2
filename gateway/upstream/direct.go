package upstream

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

const (
	// directBody is how large a request's body may be, in bytes, to be sent
	// directly: it has to fit into a socket's buffer, so that sending never
	// waits for a server that answers first.
	directBody = 64 << 10
	// directHeader bounds the header of a response, in bytes.
	directHeader = 1 << 20
)

// direct sends requests to a server on a unix socket. It writes and reads on the
// caller's goroutine; http.Transport has two goroutines more for each connection,
// and handing each request to one and back from the other is most of its cost on
// such a short way. A watch that waits costs neither those goroutines nor their
// buffers: 9 KB less. What is not an ordinary request of bounded size goes by
// other. Nothing reads an idle connection, so that it is looked at before it
// is used again.
//
// Safe for concurrent use.
type direct struct {
	dial   func(context.Context) (net.Conn, error)
	broken func() // told of connections that broke; must not block
	other  http.RoundTripper

	mu   sync.Mutex
	idle []*directConn // the one used last is the last
	reap *time.Timer   // closes those that were not used for long; nil while there are none
}

// BodyError is the client's: its body could not be read.
type BodyError struct{ err error }

func (e *BodyError) Error() string { return fmt.Sprintf("read the request's body: %v", e.err) }
func (e *BodyError) Unwrap() error { return e.err }

// takes reports whether a request is one to be sent directly.
func (d *direct) takes(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false // a method can be anything, a space in it included
	}
	h := req.Header
	for name, values := range h {
		for _, v := range values {
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(v) {
				return false // to be refused; Write would make another header of it
			}
		}
	}
	return req.ContentLength >= 0 && req.ContentLength <= directBody && (req.ContentLength > 0 || req.Body == nil || req.Body == http.NoBody) &&
		len(req.TransferEncoding) == 0 && len(req.Trailer) == 0 && h["Upgrade"] == nil && h["Expect"] == nil
}

// RoundTrip implements http.RoundTripper. The whole request is read before a
// connection is taken: a slow client keeps none from others. A request of which
// nothing was sent is sent again; so is a safe one that a connection used before
// did not answer.
func (d *direct) RoundTrip(req *http.Request) (*http.Response, error) {
	if !d.takes(req) {
		return d.other.RoundTrip(req)
	}
	message := directBuffers.Get().(*bytes.Buffer)
	defer func() { message.Reset(); directBuffers.Put(message) }()
	if err := req.Write(message); err != nil { // closes the body
		return nil, &BodyError{err}
	}
	c := d.take()
	for {
		reused := c != nil
		if !reused {
			conn, err := d.dial(req.Context())
			if err != nil {
				return nil, err
			}
			c = newDirectConn(d, conn)
		}
		res, state, err := c.exchange(req, message.Bytes())
		if err == nil {
			return res, nil
		}
		if ctx := req.Context(); ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		safe := req.Method == http.MethodGet || req.Method == http.MethodHead
		if !reused || state == answering || state == sent && !safe {
			d.broken()
			return nil, err
		}
		c = nil // by a new one
	}
}

// directBuffers hold requests.
var directBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// take returns an idle connection that is still good; nil if there is none.
func (d *direct) take() *directConn {
	for {
		d.mu.Lock()
		n := len(d.idle)
		if n == 0 {
			d.mu.Unlock()
			return nil
		}
		c := d.idle[n-1]
		d.idle[n-1] = nil
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		if c.good() {
			return c
		}
		c.Close()
	}
}

// put keeps a connection for later.
func (d *direct) put(c *directConn) {
	c.since = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.idle) >= maxIdle {
		c.Close()
		return
	}
	d.idle = append(d.idle, c)
	if d.reap == nil {
		d.reap = time.AfterFunc(idleTimeout, d.closeOld)
	}
}

// closeOld closes what was not used for idleTimeout, and comes back as long as
// there is anything.
func (d *direct) closeOld() {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := 0
	for old < len(d.idle) && time.Since(d.idle[old].since) >= idleTimeout {
		d.idle[old].Close()
		old++
	}
	d.idle = append(d.idle[:0], d.idle[old:]...)
	clear(d.idle[len(d.idle):cap(d.idle)])
	d.reap = nil
	if len(d.idle) > 0 {
		d.reap = time.AfterFunc(idleTimeout-time.Since(d.idle[0].since), d.closeOld)
	}
}

// CloseIdleConnections closes the idle connections.
func (d *direct) CloseIdleConnections() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.idle {
		c.Close()
	}
	clear(d.idle)
	d.idle = d.idle[:0]
}
