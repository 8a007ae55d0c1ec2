package gateway

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
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
	// streamBuffer is how much of a long-running answer waits here for a client
	// that does not read, in bytes; net/http would take up to 4 MiB for each.
	// The rest waits at the server, which shares it among all its watches.
	streamBuffer = 256 << 10
)

// trust says how a server is to be recognised and what is shown to it.
type trust struct {
	plain      bool           // no TLS: a unix socket in a private folder
	roots      *x509.CertPool // nil: the system's
	insecure   bool           // spec.insecureSkipTLSVerify
	serverName string
	// certificate is the front-proxy client certificate, read at every
	// handshake so that a renewed one is used at once. nil shows none.
	certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

func (t trust) config() *tls.Config {
	return &tls.Config{
		RootCAs: t.roots, InsecureSkipVerify: t.insecure, ServerName: t.serverName,
		GetClientCertificate: t.certificate, MinVersion: tls.VersionTLS12,
	}
}

// transports are the ways to one server: HTTP/1.1 for short requests and
// upgrades, which is fastest for those, and HTTP/2 for long-running ones, which
// lets many watches share a connection. Without TLS all are HTTP/1.1, and most
// short requests go directly.
type transports struct {
	short         http.RoundTripper
	upgrade, long *http.Transport
	direct        *direct // nil with TLS
}

// newTransports returns the ways to a server. broken is called when an
// established connection to it breaks; it must not block.
func newTransports(e *endpoints, t trust, broken func()) *transports {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: keepAlive}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := e.dial(ctx, dialer)
		if err != nil {
			return nil, err
		}
		return &watchedConn{Conn: conn, broken: broken}, nil
	}
	build := func(protocols *http.Protocols) *http.Transport {
		return &http.Transport{
			DialContext: dial, TLSClientConfig: t.config(), Protocols: protocols,
			MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout, TLSHandshakeTimeout: connectTimeout,
			// The client's Accept-Encoding travels on; bodies are never
			// inflated on the way.
			DisableCompression: true,
			HTTP2: &http.HTTP2Config{
				SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: streamBuffer,
			},
		}
	}
	h1, h2 := new(http.Protocols), new(http.Protocols)
	h1.SetHTTP1(true)
	h2.SetHTTP1(true)
	if !t.plain {
		h2.SetHTTP2(true)
	}
	ways := &transports{upgrade: build(h1), long: build(h2)}
	ways.short = ways.upgrade
	if t.plain {
		ways.direct = &direct{
			dial:   func(ctx context.Context) (net.Conn, error) { return e.dial(ctx, dialer) },
			broken: broken, other: ways.upgrade,
		}
		ways.short = ways.direct
	}
	return ways
}

// close lets go of idle connections. Requests under way go on.
func (t *transports) close() {
	t.upgrade.CloseIdleConnections()
	t.long.CloseIdleConnections()
	if t.direct != nil {
		t.direct.closeIdle()
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

// parsePool makes a pool of PEM certificates; empty PEM is nil, the system's.
func parsePool(pem []byte) (*x509.CertPool, error) {
	if len(pem) == 0 {
		return nil, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("parse caBundle: it holds no certificate")
	}
	return pool, nil
}
