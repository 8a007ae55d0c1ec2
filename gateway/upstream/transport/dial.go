package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// dialConn makes a connection for a pool of a generation. protocols are offered by
// ALPN (RFC 7301) where there is TLS.
func (e *Endpoint) dialConn(ctx context.Context, g *generation, protocols ...string) (*conn, error) {
	dialer := net.Dialer{KeepAlive: keepAlive}
	raw, err := dialer.DialContext(ctx, e.cfg.Network, e.cfg.Address)
	if err != nil {
		e.unasked.reset()
		return nil, &ConnectError{err}
	}
	secured := raw
	if !g.trust.Plain {
		if secured, err = e.secure(ctx, raw, g, protocols); err != nil {
			e.unasked.reset()
			return nil, &ConnectError{err}
		}
	}
	c := newConn(secured, raw, e.cfg.Timeouts().MaxAge)
	c.broken, c.ended = e.connBroken, e.cfg.Broken
	return c, nil
}

// secure makes the TLS handshake on a connection.
func (e *Endpoint) secure(ctx context.Context, raw net.Conn, g *generation, protocols []string) (*tls.Conn, error) {
	t := *g.trust
	if t.ServerName == "" {
		t.ServerName = e.cfg.Base.Hostname()
	}
	secured, asked, err := t.handshake(ctx, raw, g.credentials, protocols)
	switch {
	case err != nil && context.Cause(ctx) == errSlow:
		return nil, fmt.Errorf("TLS handshake with %s timed out after %v", e.cfg.Address, e.cfg.Timeouts().Connect)
	case err != nil:
		return nil, err
	case g.credentials.certificate == nil:
	case asked:
		e.unasked.reset()
	default:
		g.unasked.CompareAndSwap(0, time.Now().UnixNano())
	}
	return secured, nil
}

// connBroken is called when an established connection breaks.
func (e *Endpoint) connBroken() {
	e.unasked.reset()
	e.cfg.Broken()
}
