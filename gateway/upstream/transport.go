package upstream

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Limits of the connections to one server.
const (
	connectTimeout = 5 * time.Second
	keepAlive      = 15 * time.Second
	idleTimeout    = 90 * time.Second
	// maxIdle is how many idle HTTP/1.1 connections are kept to one server.
	maxIdle = 256
	// A silent HTTP/2 connection is asked for a sign of life after
	// pingAfter and given up after pingTimeout more.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// StreamBuffer is how much of a long-running answer waits here for a client
	// that does not read, in bytes; net/http would take up to 4 MiB for each.
	// The rest waits at the server, which shares it among all its watches.
	StreamBuffer = 256 << 10
)

// ways are the ways to one server: HTTP/1.1 for short requests and
// upgrades, which is fastest for those, and HTTP/2 for long-running ones, which
// lets many watches share a connection. Without TLS all are HTTP/1.1, and what
// has no large body goes directly.
type ways struct {
	short, upgrade, long http.RoundTripper

	closing []interface{ CloseIdleConnections() }
}

// newWays returns the ways to a server. broken is called when an
// established connection to it breaks; it must not block.
func newWays(e *endpoints, t Trust, broken func()) *ways {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: keepAlive}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := e.dial(ctx, dialer)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: conn, broken: broken}, nil
	}
	if t.Plain {
		h1 := newTransport(false)
		h1.DialContext = dial
		d := &direct{
			dial:   func(ctx context.Context) (net.Conn, error) { return e.dial(ctx, dialer) },
			broken: broken, other: h1,
		}
		return &ways{short: d, long: d, upgrade: h1, closing: []interface{ CloseIdleConnections() }{h1, d}}
	}
	h1 := &renewed{trust: t, dial: dial}
	h2 := &renewed{trust: t, dial: dial, shared: true}
	return &ways{short: h1, upgrade: h1, long: h2, closing: []interface{ CloseIdleConnections() }{h1, h2}}
}

// newTransport returns a transport that lacks nothing but how it connects.
// With h2 it speaks HTTP/2 with those who do.
func newTransport(h2 bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(h2)
	return &http.Transport{
		Protocols: protocols, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout,
		// The client's Accept-Encoding travels on; bodies are never inflated on
		// the way.
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: StreamBuffer,
		},
	}
}

// close lets go of idle connections. Requests under way go on.
func (t *ways) close() {
	for _, c := range t.closing {
		c.CloseIdleConnections()
	}
}

// watchedConn tells when the peer ends the connection: a server that dies is
// noticed at once, idle connections included, because http.Transport always
// waits in Read. (To servers on unix sockets there is a stream of discovery,
// which always waits.)
type watchedConn struct {
	net.Conn
	broken func()
	closed atomic.Bool
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && !c.closed.Load() && !errors.Is(err, net.ErrClosed) {
		c.broken()
	}
	return n, err
}

func (c *watchedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}
