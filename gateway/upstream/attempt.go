package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// attempt is a request on its way to one endpoint.
type attempt struct {
	*sending
	e *endpoint

	ctx     context.Context         // of the attempt, if it needs one of its own
	cancel  context.CancelCauseFunc // nil: it does not
	waiting *waiting
	// whole: if the request's own time ends before the answer begins, the server
	// had as long for that as it may take.
	whole bool
	timer atomic.Pointer[time.Timer]
	begun atomic.Bool // the answer has, or will not

	// Of who has a Trace: when the request was sent, and how long it waited for a
	// connection then.
	started   time.Time
	connected time.Duration
}

// way is how the request goes. What must not be carried out twice goes by HTTP/2
// where there are other endpoints: on HTTP/1.1 a server that closes an idle
// connection and a request that comes just then pass each other, and nobody
// knows what became of the request; on HTTP/2 the server says what it took.
func (a *attempt) way() way {
	switch {
	case a.kind == upgrade:
		return switching
	case a.kind == long, a.several && !a.safe:
		return sharedWay
	}
	return ordinary
}

// prepare returns the request as it is sent to the endpoint.
func (a *attempt) prepare() *http.Request {
	limit, whole := a.withinHeader()
	a.whole = whole && (!hasBody(a.req) || a.isKept)
	out := a.req
	if limit > 0 || a.several && a.safe {
		a.ctx, a.cancel = context.WithCancelCause(out.Context())
		out = out.WithContext(a.ctx)
	}
	if a.several && a.safe {
		a.waiting = &waiting{cancel: a.cancel, began: time.Now()}
		a.e.pending.add(a.waiting)
	}
	if base := a.e.ways.base; out.URL.Host != base.Host || out.URL.Scheme != base.Scheme {
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
		a.within(limit)
	}
	return out
}

// own returns a request that may be changed: a copy, if it is still the
// client's.
func own(out, client *http.Request) *http.Request {
	if out != client {
		return out
	}
	c := *client
	return &c
}

// withBody gives the request its body. The time for the answer to begin is
// counted from its end.
func (a *attempt) withBody(out *http.Request, limit time.Duration) *http.Request {
	switch {
	case a.isKept:
		out = own(out, a.req)
		out.Body, out.GetBody = again(a.kept), nil
		if limit > 0 {
			a.within(limit)
		}
	case a.several || limit > 0 || a.way() != ordinary || !bounded(a.req, directBodyTCP):
		// Of any other, direct has read all before it sends anything, and so knows
		// whose an error is; net/http does not tell.
		out = own(out, a.req)
		a.stream = &streamed{src: a.req.Body}
		if limit > 0 {
			a.stream.ended = func() { a.within(limit) }
		}
		out.Body = a.stream
	}
	return out
}

// within ends the attempt after a time, which making a connection is part of.
func (a *attempt) within(limit time.Duration) {
	a.timer.Store(time.AfterFunc(limit, func() {
		if !a.begun.Load() {
			a.cancel(errHeader)
		}
	}))
}

// repeats reports whether the request may go to the endpoint once more, by a new
// connection: one that was used before broke with an error before an answer began.
// It was written by then, and nobody knows whether the server has read it: so that
// is an attempt of its own, and paid for like any other. A nil attempt is that of a
// check, which may be repeated.
func (a *attempt) repeats(err error) bool {
	if a == nil {
		return true
	}
	a.taken = true
	if !a.safe || a.client().Err() != nil || !a.policy.retries() || !a.afford(sent, err) {
		return false
	}
	if a.trace != nil {
		record := a.record(brief(err))
		record.Retry = "no answer: " + record.Err.Error()
		a.trace.add(record)
		a.started = time.Now()
	}
	a.e.requests.Add(1)
	a.e.retries.Add(1)
	return true
}

// record is what a Trace has of the attempt when it ends.
func (a *attempt) record(err error) Attempt {
	return Attempt{Endpoint: a.e.URL, Start: a.started, Connect: a.connected, FirstByte: time.Since(a.started), Err: err}
}

// connecting is who is told how long connecting took; nil: nobody is.
func (a *attempt) connecting() *time.Duration {
	if a == nil || a.trace == nil {
		return nil
	}
	return &a.connected
}

// headed is the end of waiting for the header of the answer.
func (a *attempt) headed() {
	a.begun.Store(true)
	if t := a.timer.Load(); t != nil {
		t.Stop()
	}
	if a.waiting != nil {
		a.e.pending.remove(a.waiting)
	}
}

// judgeError says what an error means for the endpoint, and returns what it
// means for the request.
func (a *attempt) judgeError(p progress, err error) error {
	err = brief(err)
	var behind *behindError
	waited := errors.As(err, &behind)
	if a.cancel != nil {
		if cause := context.Cause(a.ctx); cause != nil && a.client().Err() == nil {
			err = cause
		}
		a.cancel(nil)
	}
	switch {
	case a.client().Err() != nil:
		a.gaveUp(p)
		return context.Cause(a.client())
	case clients(err):
		return err
	case a.stream.broke():
		return &BodyError{*a.stream.failed.Load()}
	}
	switch {
	case err == errSilent, waited: // that is known, or not its doing
		a.e.errors.Add(1)
		return err
	case err == errHeader && p != unsent:
		a.unanswered(p)
		return err
	case a.stays != nil && !unconnected(err), blameless(a.req, err):
		a.e.errors.Add(1)
		a.u.broken(a.e.URL) // a check will tell
		return err
	}
	a.u.failedLocally(a.e, err)
	return err
}

// judge says what an answer means for the endpoint.
func (a *attempt) judge(res *http.Response) {
	if a.stays != nil {
		if res.StatusCode >= http.StatusInternalServerError {
			a.e.errors.Add(1)
		}
		return
	}
	a.resolve(res)
	// A full storage is behind all endpoints: 507 says nothing about this one.
	if res.StatusCode >= http.StatusInternalServerError && res.StatusCode != http.StatusInsufficientStorage {
		a.u.failed(a.e, res.StatusCode)
	} else if a.e.badAnswers.Load() != 0 {
		a.e.badAnswers.Store(0)
	}
	if a.kind != short {
		a.e.settle() // its end may be far away
	}
}

// wrap has the end of the answer noticed.
func (a *attempt) wrap(res *http.Response) {
	body := &answer{ReadCloser: res.Body, u: a.u, e: a.e, client: a.client(), cancel: a.cancel, kind: a.kind, user: a.user, judges: a.stays == nil, stream: a.stream}
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
