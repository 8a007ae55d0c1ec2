package transport

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection as net/http uses it: TLS, or the network's own. It records what
// is read and written, so that the outcome of a request follows from that.
type conn struct {
	net.Conn
	raw    net.Conn // below TLS
	client *http.ClientConn
	// broken is called when an HTTP/2 connection breaks; ended when one is closed, by
	// whomever, or the server ends an idle HTTP/1.1 connection. They do not block.
	broken, ended func()
	made          time.Time
	expires       time.Time // when it takes no more requests; zero: never
	// pool is that of an HTTP/1.1 connection; nil: it is one of HTTP/2, which frames
	// follows.
	pool   *http1Pool
	frames *frames

	closed        atomic.Bool
	inUse         atomic.Bool // an HTTP/1.1 request is in progress
	read, written atomic.Int64

	// Guarded by pool.mu.
	active    int // requests in progress or reserved
	retired   bool
	listed    bool // in pool.conns, of HTTP/2
	idleSince time.Time
	finishing bool // it can soon take the next request, of HTTP/1.1

	// patient: the kernel does not end the connection for want of acknowledgements. Of
	// the request in progress.
	patient bool

	// Of HTTP/1.1. reading: net/http waits in Read. complete: the answer has been read
	// to its end. Guarded by turn.
	turn              sync.Mutex
	reading, complete bool
}

func newConn(secured, raw net.Conn, maxAge time.Duration) *conn {
	c := &conn{Conn: secured, raw: raw, made: time.Now()}
	if maxAge > 0 { // connections that were made together are replaced one by one
		c.expires = c.made.Add(maxAge - rand.N(maxAge/ageJitter+1))
	}
	return c
}

// ageJitter: a connection takes requests for up to this part less of its age.
const ageJitter = 10

type connKey struct{}

// connFromContext is the dialer of transports whose connections have been made.
func connFromContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return ctx.Value(connKey{}).(*conn), nil
}

// begin makes the connection a ClientConn of a transport.
func (c *conn) begin(ctx context.Context, t *http.Transport) (err error) {
	// The scheme only tells the transport to add no TLS of its own.
	c.client, err = t.NewClientConn(context.WithValue(ctx, connKey{}, c), "http", "server:80")
	if err != nil {
		_ = c.Conn.Close()
	}
	return err
}

// usable reports whether the connection may take requests; pool.mu is held.
func (c *conn) usable(now time.Time) bool {
	return !c.closed.Load() && !c.retired && (c.expires.IsZero() || now.Before(c.expires))
}

// reserve reserves a request; pool.mu is held.
func (c *conn) reserve() bool {
	if c.client.Reserve() != nil {
		return false
	}
	c.active++
	return true
}

// retire closes the connection after its last request; pool.mu is held.
func (c *conn) retire() {
	c.retired = true
	if c.active == 0 {
		go c.Close() // TLS may have to wait to say so
	}
}

// Read reads for net/http. An HTTP/1.1 connection can take the next request once the
// answer is complete and net/http waits for more with nothing buffered: bytes that a
// server sends beyond an answer are never taken for the next one.
func (c *conn) Read(p []byte) (int, error) {
	if c.frames != nil {
		c.frames.beforeRead()
	} else {
		c.setReading(true)
	}
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	if c.frames != nil {
		c.frames.received(p[:n], err)
	} else {
		c.setReading(false)
	}
	// A deadline is set by whoever gives the connection up.
	if err != nil && !c.closed.Load() && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		switch {
		case c.frames != nil:
			c.broken()
		case !c.inUse.Load(): // else the request reports it
			c.ended()
		}
	}
	return n, err
}

func (c *conn) setReading(reading bool) {
	c.turn.Lock()
	c.reading = reading
	idle := c.becomesIdle()
	c.turn.Unlock()
	if idle {
		c.pool.idle(c)
	}
}

// setComplete records that an HTTP/1.1 answer has been read to its end.
func (c *conn) setComplete() {
	c.turn.Lock()
	c.complete = true
	idle := c.becomesIdle()
	if !idle {
		c.pool.setFinishing(c, true) // before net/http reads again
	}
	c.turn.Unlock()
	if idle {
		c.pool.idle(c)
	}
}

// becomesIdle reports, once for each answer, that the connection can take the next
// request; turn is held.
func (c *conn) becomesIdle() bool {
	if !c.reading || !c.complete {
		return false
	}
	c.complete = false
	c.inUse.Store(false)
	return true
}

// Write counts before it writes: what may have been written counts as written.
func (c *conn) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p)))
	if c.frames != nil {
		c.frames.sending(p)
	}
	return c.Conn.Write(p)
}

// Close closes the connection. Of HTTP/2 it is ended by net/http, too, when the server
// announces it or it was idle for long.
func (c *conn) Close() error {
	first := !c.closed.Swap(true)
	switch {
	case !first:
	case c.frames != nil:
		c.frames.close()
		c.ended()
	case c.pool != nil:
		c.pool.setFinishing(c, false)
	}
	return c.Conn.Close()
}

// CloseWrite ends one direction, where the connection supports that.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// body is the body of an answer. done is called once: with io.EOF when it has been read
// to its end, with another error that reading ended in, or with nil when it was closed.
// Close may be called concurrently with Read.
type body struct {
	io.ReadCloser
	ctx      context.Context
	done     func(err error)
	finished atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	if err != io.EOF && b.ctx.Err() != nil {
		err = context.Cause(b.ctx)
	}
	b.finish(err)
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.finish(nil)
	return err
}

func (b *body) finish(err error) {
	if b.finished.CompareAndSwap(false, true) {
		b.done(err)
	}
}
