package transport

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"time"
)

// http1Pool sends requests over HTTP/1.1.
type http1Pool struct {
	*pool
	transport *http.Transport
}

func newHTTP1Pool(g *generation) *http1Pool {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	p := &http1Pool{pool: g.newPool(dialsPerProcessor * runtime.GOMAXPROCS(0)), transport: newTransport(g.cfg.Timeouts().Idle, protocols)}
	p.connect = func(ctx context.Context) (*conn, error) {
		c, err := g.dial(ctx, p.pool)
		if err != nil {
			return nil, err
		}
		if err := c.begin(ctx, p.transport); err != nil {
			return nil, &ConnectError{err}
		}
		return c, nil
	}
	return p
}

// roundTrip sends a request. sent reports whether the server may have seen any of it:
// bytes were written. If the request asks for another protocol, the body of an answer
// with 101 is the connection.
func (p *http1Pool) roundTrip(req *http.Request, protocol Protocol) (res *http.Response, sent bool, err error) {
	upgrade := protocol == Upgrade
	c, reused, err := p.acquire(req.Context(), upgrade)
	if err != nil {
		if err != errRetired {
			closeBody(req)
		}
		return nil, false, err
	}
	began := time.Now()
	read, written := c.read.Load(), c.written.Load()
	res, err = c.client.RoundTrip(withoutTrace(req))
	if err != nil {
		_ = c.Close() // nothing is written after this
		sent = c.written.Load() != written
		return nil, sent, p.failure(req, began, sent && reused && c.read.Load() == read, err)
	}
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols && !upgrade:
		_ = c.Close()
		return nil, true, ErrSwitched
	case res.StatusCode == http.StatusSwitchingProtocols:
		return res, true, nil // the connection is the caller's
	case announcesForbiddenBody(res):
		_ = c.Close()
	case res.Body == http.NoBody:
		c.setComplete()
	default:
		res.Body = &body{ReadCloser: res.Body, ctx: req.Context(), done: func(err error) {
			if err == io.EOF {
				c.setComplete()
				return
			}
			_ = c.Close()
			if err != nil && req.Context().Err() == nil && !HasBody(req) { // the end of either may be why
				p.broken()
			}
		}}
	}
	return res, true, nil
}

// failure is the error of a request without a response. silent: the connection carried
// requests before, and nothing was read from it since this one was written. If it broke,
// connections that have been idle since before are closed: they may be dead as well.
func (p *http1Pool) failure(req *http.Request, began time.Time, silent bool, err error) error {
	switch {
	case req.Context().Err() != nil:
		return context.Cause(req.Context())
	case silent:
		p.closeIdleSince(began)
		return &StaleError{err}
	}
	return err
}

// announcesForbiddenBody reports whether a response that has no body (RFC 9110, 15.3.5)
// announces one: a server may send it, and it must not be read as the next response.
func announcesForbiddenBody(res *http.Response) bool {
	length := res.Header.Get("Content-Length")
	return res.StatusCode == http.StatusNoContent && (len(res.TransferEncoding) > 0 || length != "" && length != "0")
}
