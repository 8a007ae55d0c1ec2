package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"
)

// smallBody is how large the body of a request may be, in bytes, for the kernel to be
// expected to have it acknowledged within silence: the receiver has room for it.
const smallBody = 64 << 10

// http1Pool sends requests over HTTP/1.1.
type http1Pool struct {
	*pool
	transport *http.Transport
	ended     func()
	// silence is how long what was sent may stay unacknowledged.
	silence time.Duration
}

// newHTTP1Pool returns a pool whose connections dial makes.
func newHTTP1Pool(e *Endpoint, dial func(context.Context) (*conn, error)) *http1Pool {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	p := &http1Pool{pool: e.newPool(e.maxDials()), transport: newTransport(e.cfg.Timeouts().Idle, protocols), ended: e.unasked.reset, silence: silence}
	p.connect = func(ctx context.Context) (*conn, error) {
		c, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return c, p.adopt(ctx, c)
	}
	return p
}

// adopt makes a connection one of the pool.
func (p *http1Pool) adopt(ctx context.Context, c *conn) error {
	c.pool, c.ended = p, p.ended
	setUserTimeout(c.raw, p.silence)
	if err := c.begin(ctx, p.transport); err != nil {
		return &ConnectError{err}
	}
	return nil
}

// add takes a connection that was made for another protocol.
func (p *http1Pool) add(ctx context.Context, c *conn) {
	if p.adopt(ctx, c) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offer(c, false)
}

// roundTrip sends a request. sent reports whether the server may have seen any of it.
// upgrade: the request asks for another protocol; the body of an answer with 101 is
// the connection then.
func (p *http1Pool) roundTrip(req *http.Request, opt Options) (res *http.Response, sent bool, err error) {
	upgrade := opt.Protocol == Upgrade
	c, reused, err := p.acquire(req.Context(), upgrade)
	if err != nil {
		if err != errRetired {
			closeBody(req)
		}
		return nil, false, err
	}
	began := time.Now()
	c.inUse.Store(true)
	if patient := upgrade || hasBody(req) && (req.ContentLength < 0 || req.ContentLength > smallBody); patient != c.patient {
		c.patient = patient
		if patient {
			setUserTimeout(c.raw, 0)
		} else {
			setUserTimeout(c.raw, p.silence)
		}
	}
	trace := newRequestTrace(req, opt.Informational, nil)
	read, written := c.read.Load(), c.written.Load()
	res, err = c.client.RoundTrip(trace.request)
	trace.settle(err)
	if err != nil {
		_ = c.Close() // nothing is written after this
		silent := reused && c.read.Load() == read
		return nil, c.written.Load() != written, p.failure(req, began, silent && c.written.Load() != written, err)
	}
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols && !upgrade:
		_ = c.Close()
		return nil, true, ErrSwitched
	case res.StatusCode == http.StatusSwitchingProtocols:
		return res, true, nil // the connection is the caller's
	case saysBodyInVain(res):
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
			if err != nil && req.Context().Err() == nil && !hasBody(req) { // whose end may be why
				p.broken()
			}
		}}
	}
	return res, true, nil
}

// failure is the error of a request that got no answer. silent: the connection carried
// requests before, and nothing came on it since this one was written. Idle connections
// that have shown no life since are closed then if a network on the way may have
// forgotten them.
func (p *http1Pool) failure(req *http.Request, began time.Time, silent bool, err error) error {
	if silent && (time.Since(began) >= pingAfter || isUnacknowledged(err)) {
		p.closeIdleSince(began)
		p.broken()
	}
	if req.Context().Err() != nil {
		return context.Cause(req.Context())
	}
	p.ended() // the caller decides whose fault it is
	if silent {
		p.closeIdleSince(began)
		return &StaleError{err}
	}
	return err
}

// isUnacknowledged reports whether the kernel gave the connection up because the peer
// did not acknowledge what was sent.
func isUnacknowledged(err error) bool {
	return errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH)
}

// saysBodyInVain reports whether a response that has no body says that it has one: a
// server may send it, and it must not be read as the next response.
func saysBodyInVain(res *http.Response) bool {
	length := res.Header.Get("Content-Length")
	return res.StatusCode == http.StatusNoContent && (len(res.TransferEncoding) > 0 || length != "" && length != "0")
}
