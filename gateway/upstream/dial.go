package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// ConnectError is of a connection that could not be made: nothing was sent.
type ConnectError struct{ Err error }

func (e *ConnectError) Error() string { return e.Err.Error() }
func (e *ConnectError) Unwrap() error { return e.Err }

// errSlow ends connecting that takes too long.
var errSlow = errors.New("the time to connect is over")

// connect makes a connection without TLS.
func (w *ways) connect(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.policy().Connect, errSlow)
	defer cancel()
	host, port, err := net.SplitHostPort(w.address)
	if w.network != "tcp" || err != nil || isIP(host) {
		return w.dial(ctx, w.address)
	}
	return w.connectByName(ctx, host, port)
}

// dial connects to one address, within the time of ctx.
func (w *ways) dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: keepAlive}
	conn, err := dialer.DialContext(ctx, w.network, address)
	if err != nil {
		return nil, &ConnectError{err}
	}
	return conn, nil
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// secure makes a connection with TLS; raw is what is below that. One that may be
// shared, where there are protocols to choose from, tells when it breaks.
func (w *ways) secure(ctx context.Context, g *generation, protocols []string) (secured net.Conn, raw net.Conn, err error) {
	limit := w.policy().Connect
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	raw, err = w.connect(ctx)
	if err != nil {
		w.unasked.begin()
		return nil, nil, err
	}
	if protocols != nil {
		raw = &watchedConn{Conn: raw, broken: w.broke, ended: w.broken, lasting: true}
	}
	t := *g.trust
	if t.ServerName == "" {
		t.ServerName = w.base.Hostname() // whom the URL names
	}
	conn, asked, err := t.handshake(ctx, raw, g.credentials, protocols)
	if err != nil {
		w.unasked.begin()
		if context.Cause(ctx) == errSlow {
			err = fmt.Errorf("TLS handshake with %s timed out after %v", w.address, limit)
		}
		return nil, nil, &ConnectError{err}
	}
	switch {
	case g.credentials.certificate == nil:
	case asked:
		w.unasked.begin()
	default:
		g.unasked.CompareAndSwap(0, time.Now().UnixNano())
	}
	return conn, raw, nil
}

// watchedConn tells when the peer ends the connection: a server that dies is
// noticed at once, idle connections included, because net/http always waits in
// Read. It counts what is written.
type watchedConn struct {
	net.Conn
	broken func()
	// lasting: whoever uses the connection closes it because the peer said that it
	// will, after a long time without a request, or because others take its place; the
	// first is worth a check. ended is told of all.
	lasting bool
	ended   func()
	closed  atomic.Bool
	written atomic.Int64
}

// Read tells of an end that the peer, or the way to it, has made. Who sets a deadline
// does so to look whether anything has come, or because nobody wants it any more.
func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !c.closed.Load() && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.broken()
	}
	return n, err
}

// Write counts what may have been written as written.
func (c *watchedConn) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p)))
	return c.Conn.Write(p)
}

func (c *watchedConn) Close() error {
	if !c.closed.Swap(true) && c.lasting {
		c.ended()
	}
	return c.Conn.Close()
}

// CloseWrite ends one direction, where the connection can do that.
func (c *watchedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
