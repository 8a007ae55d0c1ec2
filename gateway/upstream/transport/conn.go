package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection as net/http uses it: TLS, or the network's own. It counts the
// bytes read and written, from which the outcome of a request follows.
type conn struct {
	net.Conn
	pool   *pool
	client *http.ClientConn
	frames *frames // of HTTP/2; nil over HTTP/1.1
	// expires is when it takes no more requests; zero: never.
	expires time.Time

	closed        atomic.Bool
	read, written atomic.Int64

	// Guarded by pool.mu.
	active    int // requests in progress or reserved
	retired   bool
	idleSince time.Time

	// Of HTTP/1.1, guarded by stateMu. reading: net/http waits in Read. complete: the
	// response has been read to its end.
	stateMu           sync.Mutex
	reading, complete bool
}

// ageJitter: a connection expires earlier than its age by up to this part of it, so
// that connections made together are not replaced together.
const ageJitter = 10

func newConn(c net.Conn, p *pool) *conn {
	out := &conn{Conn: c, pool: p}
	if age := p.timeouts().MaxAge; age > 0 {
		out.expires = time.Now().Add(age - rand.N(age/ageJitter+1))
	}
	return out
}

// dial makes a connection to the endpoint for a pool. protocols are offered by ALPN
// (RFC 7301) where there is TLS.
func (g *generation) dial(ctx context.Context, p *pool, protocols ...string) (*conn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAlive, Interval: keepAlive / 3, Count: 3}}
	connect := dialer.DialContext
	if g.trust.Dial != nil && g.cfg.Network != "unix" {
		connect = g.trust.Dial
	}
	raw, err := connect(ctx, g.cfg.Network, g.cfg.Address)
	if err != nil {
		return nil, &ConnectError{err}
	}
	if g.trust.Plain {
		return newConn(raw, p), nil
	}
	secured, err := g.secure(ctx, raw, protocols)
	if err != nil {
		return nil, &ConnectError{err}
	}
	return newConn(secured, p), nil
}

// secure makes the TLS handshake on a connection.
func (g *generation) secure(ctx context.Context, raw net.Conn, protocols []string) (*tls.Conn, error) {
	t := *g.trust
	if t.ServerName == "" {
		t.ServerName = g.cfg.Base.Hostname()
	}
	secured, err := t.handshake(ctx, raw, g.credentials, protocols)
	if err != nil && context.Cause(ctx) == errSlow {
		err = fmt.Errorf("TLS handshake with %s timed out after %v", g.cfg.Address, g.cfg.Timeouts().Connect)
	}
	return secured, err
}

type connKey struct{}

// connFromContext is the dialer of transports for connections that have been made.
func connFromContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return ctx.Value(connKey{}).(*conn), nil
}

// begin makes the connection a ClientConn of a transport.
func (c *conn) begin(ctx context.Context, t *http.Transport) (err error) {
	// With this scheme the transport adds no TLS of its own.
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
		go c.Close() // the TLS alert may have to wait
	}
}

// Read reads for net/http. An HTTP/1.1 connection can take the next request once the
// response is complete and net/http waits for more with nothing buffered: bytes that a
// server sends beyond a response are never taken for the next one.
func (c *conn) Read(p []byte) (int, error) {
	if c.frames != nil {
		c.frames.beforeRead()
		n, err := c.Conn.Read(p)
		c.frames.received(p[:n], err)
		return n, err
	}
	c.setReading(true)
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	c.setReading(false)
	return n, err
}

func (c *conn) setReading(reading bool) {
	c.stateMu.Lock()
	c.reading = reading
	idle := c.becomesIdle()
	c.stateMu.Unlock()
	if idle {
		c.pool.putIdle(c)
	}
}

// setComplete records that an HTTP/1.1 response has been read to its end.
func (c *conn) setComplete() {
	c.stateMu.Lock()
	c.complete = true
	idle := c.becomesIdle()
	c.stateMu.Unlock()
	if idle {
		c.pool.putIdle(c)
	}
}

// becomesIdle reports, once for each response, that the connection can take the next
// request; stateMu is held.
func (c *conn) becomesIdle() bool {
	if !c.reading || !c.complete {
		return false
	}
	c.complete = false
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

// Close closes the connection. net/http calls it too, when a connection breaks, the
// server closes it or an HTTP/2 connection was idle for too long.
func (c *conn) Close() error {
	if !c.closed.Swap(true) && c.frames != nil {
		c.frames.close()
		c.pool.broken()
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

// body is the body of a response. done is called once: with io.EOF when it has been
// read to its end, with another error that reading ended in, or with nil when it was
// closed. Close may be called concurrently with Read.
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
