package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"portico/gateway/upstream/retry"
	"portico/gateway/upstream/transport"
)

// attempt is a request on its way to one endpoint.
type attempt struct {
	*retryLoop
	e *endpoint

	ctx    context.Context         // of the attempt, if it needs one of its own
	cancel context.CancelCauseFunc // nil: it does not
	// stopWatching ends the cancellation for an endpoint that no longer answers.
	stopWatching func() bool
	timer        atomic.Pointer[time.Timer]
	begun        atomic.Bool   // the answer has begun, or the attempt has ended
	stream       *retry.Stream // the request's body; nil: it has none, or it was kept
	started      time.Time
}

// attempt sends the request to one endpoint, and records the result for the endpoint.
func (l *retryLoop) attempt(e *endpoint) (r retry.Result) {
	a := attempt{retryLoop: l, e: e, started: time.Now()}
	out := a.prepare()
	var ended func(Attempt)
	if l.trace != nil && l.trace.BeforeAttempt != nil {
		out = own(out, a.req)
		out.Header = out.Header.Clone() // an attempt that was cancelled may still read the one before
		ended = l.trace.BeforeAttempt(e.URL, out.Header)
	}
	e.begin(l.kind)
	r.Response, r.Sent, r.Err = e.transport.RoundTrip(out, a.protocol())
	if r.Err == nil && (r.Response.StatusCode < 100 || r.Response.StatusCode > 999) {
		_ = r.Response.Body.Close()
		r.Response, r.Err = nil, fmt.Errorf("the server answered with the status %d", r.Response.StatusCode)
	}
	a.finishWaiting()
	if r.Err != nil {
		e.end(l.kind)
		r.Err = a.recordError(r)
	} else {
		a.recordAnswer(r.Response)
		a.wrap(r.Response)
	}
	a.record(r, ended)
	return r
}

// record adds the attempt to the trace.
func (a *attempt) record(r retry.Result, ended func(Attempt)) {
	if a.trace == nil {
		return
	}
	record := Attempt{Endpoint: a.e.URL, Start: a.started, FirstByte: time.Since(a.started), Err: r.Err}
	if r.Response != nil {
		record.Status = r.Response.StatusCode
	}
	a.trace.add(record)
	if ended != nil {
		ended(record)
	}
}

// protocol is how the request is sent. Where there are other endpoints, a request that
// must not be carried out twice goes over HTTP/2: over HTTP/1.1 a server may close an
// idle connection just as a request is written, and it is not known whether it was
// carried out; over HTTP/2 the server says which requests it took.
func (a *attempt) protocol() transport.Protocol {
	switch {
	case a.kind == upgrade:
		return transport.Upgrade
	case a.kind == long, a.several && !a.safe:
		return transport.HTTP2
	}
	return transport.HTTP1
}

// prepare returns the request as it is sent to the endpoint.
func (a *attempt) prepare() *http.Request {
	limit := a.headerTimeout()
	out := a.req
	if limit > 0 || a.several && a.safe {
		a.ctx, a.cancel = context.WithCancelCause(out.Context())
		out = out.WithContext(a.ctx)
	}
	if a.several && a.safe {
		a.stopWatching = context.AfterFunc(a.e.waiting.Load(), func() { a.cancel(errSilent) })
	}
	if base := a.e.transport.Base(); out.URL.Host != base.Host || out.URL.Scheme != base.Scheme {
		out = own(out, a.req)
		to := *out.URL
		if out.Host == to.Host {
			out.Host = base.Host
		}
		to.Scheme, to.Host = base.Scheme, base.Host
		out.URL = &to
	}
	var ended func()
	if limit > 0 {
		ended = func() { a.limitHeader(limit) }
	}
	if transport.HasBody(a.req) {
		out = own(out, a.req)
	}
	a.stream = a.body.Open(out, ended)
	return out
}

// own returns a request that may be changed: a copy, if it is the client's.
func own(out, client *http.Request) *http.Request {
	if out != client {
		return out
	}
	c := *client
	return &c
}

// limitHeader ends the attempt after a time, unless the answer has begun. The time
// includes making a connection.
func (a *attempt) limitHeader(limit time.Duration) {
	a.timer.Store(time.AfterFunc(limit, func() {
		if !a.begun.Load() {
			a.cancel(errHeaderTimeout)
		}
	}))
}

// finishWaiting is called when the header of the answer has been read, or the attempt
// has failed.
func (a *attempt) finishWaiting() {
	a.begun.Store(true)
	if t := a.timer.Load(); t != nil {
		t.Stop()
	}
	if a.stopWatching != nil {
		a.stopWatching()
	}
}

// recordError records what a failed attempt says about the endpoint, and returns the
// error of the request.
func (a *attempt) recordError(r retry.Result) error {
	err := bounded(r.Err)
	if a.cancel != nil {
		if cause := context.Cause(a.ctx); cause != nil && a.client().Err() == nil {
			err = cause
		}
		a.cancel(nil)
	}
	switch {
	case a.client().Err() != nil:
		if r.Sent && a.exhausted() {
			a.u.timedOut(a.e)
		}
		return context.Cause(a.client())
	case retry.IsClients(err):
		return err
	case a.stream.Err() != nil:
		return a.stream.Err()
	case err == errHeaderTimeout && r.Sent:
		a.u.timedOut(a.e)
	case err == errHeaderTimeout, err == errSilent: // it waited for a connection; a check has failed
		a.e.errors.Add(1)
	case is[*transport.StaleError](err) && a.safe: // the next attempt shows whether the endpoint fails
	case is[*transport.StaleError](err), a.pinned != nil && !is[*transport.ConnectError](err), hasLargeHeader(a.req) && !is[*transport.ConnectError](err):
		a.e.errors.Add(1)
		a.u.broken(a.e.URL) // a check decides
	default:
		a.u.connectionFailed(a.e, err)
	}
	return err
}

// exhausted reports whether the request's own deadline has passed and left the server
// about the response header timeout. A client that was slow to send the body may have
// used up the time.
func (a *attempt) exhausted() bool {
	limit := a.policy.Timeouts.ResponseHeader
	return a.limited && limit > 0 && a.stream == nil && errors.Is(context.Cause(a.client()), context.DeadlineExceeded) &&
		time.Since(a.started) >= limit-limit/deadlineSlack
}

// recordAnswer records what an answer says about the endpoint.
func (a *attempt) recordAnswer(res *http.Response) {
	failed := res.StatusCode >= http.StatusInternalServerError
	switch {
	case a.pinned != nil:
		if failed {
			a.e.errors.Add(1)
		}
		return
	case failed && res.StatusCode != http.StatusInsufficientStorage: // 507 is the storage's, which all share
		a.u.answerFailed(a.e, res.StatusCode)
	default:
		a.e.answers.Add(1)
		a.e.health.Answers.Good()
	}
	if a.kind != short {
		a.e.health.Connections.Good() // its end may be far away
	}
}

// wrap has the end of the answer recorded.
func (a *attempt) wrap(res *http.Response) {
	body := &answer{ReadCloser: res.Body, attempt: a}
	switch rw, ok := res.Body.(io.ReadWriter); {
	case res.StatusCode == http.StatusSwitchingProtocols && ok:
		res.Body = &tunnel{answer: body, w: rw}
	case res.Body == http.NoBody:
		body.finish(io.EOF)
	default:
		res.Body = body
		a.listStream(body)
	}
}
