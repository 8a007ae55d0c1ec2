package upstream

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// directBody is how large a request's body may be, in bytes, to be sent
	// directly: it has to fit into a socket's buffer, so that sending never
	// waits for a server that answers first. That of a TCP connection is small
	// at the beginning.
	directBody    = 64 << 10
	directBodyTCP = 16 << 10
)

// direct sends requests by HTTP/1.1. It writes and reads on the caller's
// goroutine; http.Transport has two goroutines more for each connection, and
// handing each request to one and back from the other is most of its cost on a
// short way. A watch that waits costs neither those goroutines nor their
// buffers: 9 KB less. And it knows what of a request was sent. What is not an
// ordinary request of bounded size is not for it. Nothing reads an idle
// connection, so that it is looked at before it is used again.
//
// Safe for concurrent use.
type direct struct {
	// dial connects; raw is what is below TLS, or the connection itself.
	dial        func(context.Context) (conn, raw net.Conn, err error)
	limit       func() time.Duration // to connect
	maxDials    int                  // at the same time
	processors  int                  // that handshakes have; 0: any number
	broken      func()               // told of connections that broke; must not block
	ended       func()               // the same of those that the server ended while they were idle; nil: nobody is
	lateness    func() time.Duration // how late the process learns of what has come; nil: at once
	silence     time.Duration        // how long what was sent may be unacknowledged; 0: any time
	idleTimeout time.Duration
	maxAge      time.Duration // 0: any
	maxBody     int64
	// successor are the connections in whose place these are not used any more,
	// for those who wait when they are retired.
	successor func() (*direct, error)

	mu      sync.Mutex
	line    line
	idle    []*directConn // the one used last is the last
	reap    *time.Timer   // closes those that were not used for long; nil while there are none
	retired bool          // connections are not kept
}

// BodyError is the client's: its body could not be read.
type BodyError struct{ err error }

func (e *BodyError) Error() string { return fmt.Sprintf("read the request's body: %v", e.err) }
func (e *BodyError) Unwrap() error { return e.err }

// takes reports whether a request is one to be sent directly.
func (d *direct) takes(req *http.Request) bool {
	if !bounded(req, d.maxBody) {
		return false
	}
	for name, values := range req.Header {
		if !isHeader(name, values) {
			return false // to be refused; sent, it would be another header
		}
	}
	return true
}

// bounded reports whether a request is an ordinary one whose body has at most so
// many bytes.
func bounded(req *http.Request, maxBody int64) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
	default:
		return false // a method can be anything, a space in it included
	}
	h := req.Header
	return req.ContentLength >= 0 && req.ContentLength <= maxBody && (req.ContentLength > 0 || !hasBody(req)) &&
		len(req.TransferEncoding) == 0 && len(req.Trailer) == 0 && h["Upgrade"] == nil && h["Expect"] == nil
}

// send sends a request that direct takes, and says how far it got. The whole
// request is read before a connection is taken: a slow client keeps none from
// others. What a connection used before did not take, because its server had
// just closed it, goes by a new one at once: all of which nothing was sent; what
// is safe, if the server is known to have closed it before the request came; and
// what else is safe, if the attempt may be repeated.
func (d *direct) send(req *http.Request, a *attempt) (*http.Response, progress, error) {
	message := directBuffers.Get().(*bytes.Buffer)
	defer func() { message.Reset(); directBuffers.Put(message) }()
	if !appendHead(message, req) {
		if err := req.Write(message); err != nil { // closes the body
			return nil, unsent, &BodyError{err}
		}
	}
	c, reused, fresh := d.take(), true, false
	for {
		if c == nil {
			started := time.Now()
			var err error
			c, reused, err = d.wait(req.Context(), fresh)
			if connected := a.connecting(); connected != nil {
				*connected = time.Since(started)
			}
			if err != nil {
				return nil, unsent, err
			}
		}
		began := time.Now()
		res, state, err := c.exchange(req, message.Bytes())
		if err == nil {
			return res, state, nil
		}
		if reused && state == sent && !c.got {
			d.silent(began, err)
		}
		if ctx := req.Context(); ctx.Err() != nil {
			return nil, state, context.Cause(ctx)
		}
		if !reused || !twice(req, state) || state == sent && !c.missed && !a.repeats(err) {
			d.broken()
			return nil, state, err
		}
		c, fresh = nil, true // by a new one
	}
}

// twice reports whether a request that got so far may be sent once more.
func twice(req *http.Request, state progress) bool {
	return state == unsent || state == sent && Safe(req.Method)
}

// Safe reports whether a method does not change anything, so that it may be
// sent twice.
func Safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
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
		if c.inTime() && d.ended != nil {
			d.ended()
		}
		c.Close()
	}
}

// put gives a connection to who waits for one, or keeps it for later.
func (d *direct) put(c *directConn) {
	c.since = time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.line.moved = c.since
	if d.first(true) != nil {
		d.mu.Unlock()
		good := c.good()
		d.mu.Lock()
		if !good {
			c.Close() // there is a dial for who waits, or will be
			return
		}
		if w := d.first(true); w != nil {
			d.give(w, c, true, nil)
			return
		}
	}
	if d.retired || len(d.idle) >= maxIdle {
		c.Close()
		return
	}
	d.idle = append(d.idle, c)
	if d.reap == nil {
		d.reap = time.AfterFunc(d.idleTimeout, d.closeOld)
	}
}

// closeOld closes what was not used for idleTimeout, and comes back as long as
// there is anything.
func (d *direct) closeOld() {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := 0
	for old < len(d.idle) && time.Since(d.idle[old].since) >= d.idleTimeout {
		d.idle[old].Close()
		old++
	}
	d.idle = append(d.idle[:0], d.idle[old:]...)
	clear(d.idle[len(d.idle):cap(d.idle)])
	d.reap = nil
	if len(d.idle) > 0 {
		d.reap = time.AfterFunc(d.idleTimeout-time.Since(d.idle[0].since), d.closeOld)
	}
}

// retire closes the idle connections, and the others when they become so. Who
// waits goes to those that have taken their place.
func (d *direct) retire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retired = true
	for w := d.first(false); w != nil; w = d.first(false) {
		d.give(w, nil, false, errRetired)
	}
	for _, c := range d.idle {
		c.Close()
	}
	clear(d.idle)
	d.idle = d.idle[:0]
}
