package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"portico/gateway/upstream/transport"
)

// attempt is a request on its way to one endpoint.
type attempt struct {
	*retryLoop
	e *endpoint

	ctx     context.Context         // of the attempt, if it needs one of its own
	cancel  context.CancelCauseFunc // nil: it does not
	pending *pendingRequest
	// whole: the request's own deadline leaves the server about the response header
	// timeout.
	whole bool
	timer atomic.Pointer[time.Timer]
	begun atomic.Bool // the answer has begun, or the attempt has ended

	started time.Time // when the request was sent, if there is a Trace
}

// attempt sends the request to one endpoint, and records the outcome for the endpoint.
// sent reports, of a request that failed, whether the server may have seen any of it.
func (l *retryLoop) attempt(e *endpoint) (res *http.Response, sent bool, err error) {
	a := attempt{retryLoop: l, e: e}
	out := a.prepare()
	options := transport.Options{Protocol: a.protocol()}
	var ended func(Attempt)
	if l.trace != nil {
		a.started = time.Now()
		options.Informational = l.trace.Informing
		if l.trace.Sending != nil {
			out = own(out, a.req)
			out.Header = out.Header.Clone() // an attempt that was cancelled may still read the one before
			ended = l.trace.Sending(e.URL, out.Header)
		}
	}
	e.begin(l.kind)
	e.requests.Add(1)
	res, sent, err = e.transport.RoundTrip(out, options)
	if err == nil && (res.StatusCode < 100 || res.StatusCode > 999) {
		_ = res.Body.Close()
		res, err = nil, fmt.Errorf("the server answered with the status %d", res.StatusCode)
	}
	a.finishWaiting()
	if err != nil {
		e.end(l.kind)
		err = a.recordError(sent, err)
	} else {
		a.recordAnswer(res)
		a.wrap(res)
	}
	if l.trace != nil {
		record := Attempt{Endpoint: e.URL, Start: a.started, FirstByte: time.Since(a.started), Err: err}
		if res != nil {
			record.Status = res.StatusCode
		}
		l.trace.add(record)
		if ended != nil {
			ended(record)
		}
	}
	return res, sent, err
}

// protocol is how the request is sent. What must not be carried out twice goes by
// HTTP/2 where there are other endpoints: over HTTP/1.1 a server may close an idle
// connection just when a request comes, and it is not known what became of that; over
// HTTP/2 the server says what it took.
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
	limit, whole := a.headerTimeout()
	a.whole = whole && (!hasBody(a.req) || a.isKept)
	out := a.req
	if limit > 0 || a.several && a.safe {
		a.ctx, a.cancel = context.WithCancelCause(out.Context())
		out = out.WithContext(a.ctx)
	}
	if a.several && a.safe {
		a.pending = &pendingRequest{cancel: a.cancel}
		a.e.pending.add(a.pending)
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
	if hasBody(a.req) {
		out = a.withBody(out, limit)
	} else if limit > 0 {
		a.limitHeader(limit)
	}
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

// withBody gives the request its body. The response header timeout begins at its end.
func (a *attempt) withBody(out *http.Request, limit time.Duration) *http.Request {
	out = own(out, a.req)
	if a.isKept {
		out.Body, out.GetBody = newKeptBody(a.kept), nil
		if limit > 0 {
			a.limitHeader(limit)
		}
		return out
	}
	a.stream = &streamed{src: a.req.Body}
	if limit > 0 {
		a.stream.ended = func() { a.limitHeader(limit) }
	}
	out.Body = a.stream
	return out
}

// limitHeader ends the attempt after a time, which includes making a connection.
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
	if a.pending != nil {
		a.e.pending.remove(a.pending)
	}
}

// recordError records what an error says about the endpoint, and returns the error
// that the request has.
func (a *attempt) recordError(sent bool, err error) error {
	err = bounded(err)
	queued := isQueue(err)
	if a.cancel != nil {
		if cause := context.Cause(a.ctx); cause != nil && a.client().Err() == nil {
			err = cause
		}
		a.cancel(nil)
	}
	switch {
	case a.client().Err() != nil:
		if sent && a.whole && a.deadlineExceeded() {
			a.u.timedOut(a.e)
		}
		return context.Cause(a.client())
	case isClients(err):
		return err
	case a.stream.broke():
		return &BodyError{*a.stream.failed.Load()}
	case err == errSilent, queued: // known, or not the endpoint's fault
		a.e.errors.Add(1)
	case err == errHeaderTimeout && sent:
		a.u.timedOut(a.e)
	case isStale(err) && a.safe: // another attempt will tell
	case isStale(err), a.pinned != nil && !isConnect(err), hasLargeHeader(a.req) && !isConnect(err):
		a.e.errors.Add(1)
		a.u.broken(a.e.URL) // a check decides
	default:
		a.u.failedLocally(a.e, err)
	}
	return err
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
		a.u.failed(a.e, res.StatusCode)
	default:
		a.e.breaker.AnswerGood()
	}
	if a.kind != short {
		a.e.breaker.ConnectionGood() // its end may be far away
	}
}

// wrap has the end of the answer recorded.
func (a *attempt) wrap(res *http.Response) {
	body := &answer{ReadCloser: res.Body, u: a.u, e: a.e, client: a.client(), cancel: a.cancel, kind: a.kind, user: a.user, judges: a.pinned == nil, stream: a.stream}
	switch rw, ok := res.Body.(io.ReadWriter); {
	case res.StatusCode == http.StatusSwitchingProtocols && ok:
		res.Body = &tunnel{answer: body, w: rw}
	case res.Body == http.NoBody:
		body.finish(io.EOF)
	default:
		res.Body = body
		a.list(body)
	}
}
