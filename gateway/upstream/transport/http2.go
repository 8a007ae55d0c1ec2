package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/http2"
)

// maxUnusable bounds the connections that one request tries, if each is closed before
// its header is encoded.
const maxUnusable = 4

// http2Pool sends requests over HTTP/2, many on each connection. It dials one
// connection at a time: ten thousand watches that begin together need a few dozen
// handshakes, not one each.
type http2Pool struct {
	*pool
	transport *http.Transport
	// unsupported: the server does not speak HTTP/2.
	unsupported atomic.Bool
}

func newHTTP2Pool(g *generation, adjust func(*http.Transport)) (*http2Pool, error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // TLS, if there is any, is below what net/http sees
	p := &http2Pool{pool: g.newPool(1), transport: newTransport(g.cfg.Timeouts().Idle, protocols)}
	p.multiplexed = true
	if adjust != nil {
		adjust(p.transport)
	}
	if err := configureHTTP2(p.transport); err != nil {
		return nil, fmt.Errorf("configure HTTP/2: %w", err)
	}
	p.connect = func(ctx context.Context) (*conn, error) {
		c, err := g.dial(ctx, p.pool, "h2", "http/1.1")
		if err != nil {
			return nil, err
		}
		if secured, ok := c.Conn.(*tls.Conn); ok && secured.ConnectionState().NegotiatedProtocol != "h2" {
			p.unsupported.Store(true)
			go c.Close()
			return nil, errNoHTTP2
		}
		return p.begin(ctx, c, g.cfg.Address)
	}
	return p, nil
}

// begin begins HTTP/2 on a connection and waits until the SETTINGS of both sides are in
// effect: they say how many requests the server permits, and more would be refused.
// Without TLS the protocol is known beforehand (RFC 9113, 3.3); a server that does not
// speak it answers the preface with an error of HTTP/1.1, or closes the connection.
func (p *http2Pool) begin(ctx context.Context, c *conn, address string) (*conn, error) {
	c.frames = newFrames()
	err := c.begin(ctx, p.transport)
	if err == nil {
		select {
		case <-c.frames.ready:
			c.frames.mu.Lock()
			err = c.frames.err
			c.frames.mu.Unlock()
		case <-ctx.Done():
			err = fmt.Errorf("HTTP/2 with %s did not begin within %v", address, p.timeouts().Connect)
		}
	}
	if err == nil {
		return c, nil
	}
	_, secured := c.Conn.(*tls.Conn)
	c.frames.mu.Lock()
	began, http1 := c.frames.began, c.frames.http1
	c.frames.mu.Unlock()
	go c.Close()
	switch {
	case secured:
	case http1:
		p.unsupported.Store(true)
		return nil, errNoHTTP2
	case !began && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)):
		// It may also be a server that stops: the next request tries again.
		return nil, errNoHTTP2
	}
	return nil, &ConnectError{fmt.Errorf("begin HTTP/2 with %s: %w", address, err)}
}

// roundTrip sends a request. sent reports whether the server may have processed any of
// it: its header was encoded, and the server did not exclude its stream by
// REFUSED_STREAM or GOAWAY (RFC 9113, 8.7).
func (p *http2Pool) roundTrip(req *http.Request) (res *http.Response, sent bool, err error) {
	for i := 1; ; i++ {
		if p.unsupported.Load() {
			return nil, false, errNoHTTP2
		}
		c, _, err := p.acquire(req.Context(), false)
		if err != nil {
			if err != errRetired && !errors.Is(err, errNoHTTP2) {
				closeBody(req)
			}
			return nil, false, err
		}
		trace := headerTrace{frames: c.frames}
		res, err := c.client.RoundTrip(trace.attach(req))
		if err == nil {
			if res.Body == http.NoBody {
				p.release(c)
			} else {
				res.Body = &body{ReadCloser: res.Body, ctx: req.Context(), done: func(error) { p.release(c) }}
			}
			return res, true, nil
		}
		p.release(c)
		switch before, encoded := trace.result(); {
		case req.Context().Err() != nil:
			// The header may be written after this.
			return nil, true, err
		case !encoded && !HasBody(req) && i < maxUnusable && c.client.Err() != nil:
			continue
		default:
			return nil, encoded && !isRefused(err) && !c.frames.excluded(before), err
		}
	}
}

// isRefused reports whether the server reset the stream before it did anything of the
// request (RFC 9113, 8.7).
func isRefused(err error) bool {
	var stream http2.StreamError
	return errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream
}
