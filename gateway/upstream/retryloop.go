package upstream

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"portico/gateway/upstream/health"
	"portico/gateway/upstream/retry"
	"portico/gateway/upstream/transport"
	"portico/resource"
)

// kind of a request.
type kind int

const (
	short   kind = iota // has a deadline
	long                // has none
	upgrade             // leaves HTTP
)

const (
	// maxTried bounds the attempts of one request; those that endpoints refused the
	// connection for do not count against Policy.Attempts.
	maxTried = 16
	// maxDiscarded is how much of an answer that is not used is read, in bytes, so that
	// its connection can carry another request.
	maxDiscarded = 16 << 10
)

// retryLoop sends one request to endpoints, one after the other, until one answers or
// the request must not be repeated. It is used by the request's goroutine only.
type retryLoop struct {
	u      *Upstream
	b      *balancer
	policy *Policy
	kind   kind
	req    *http.Request
	act    *resource.Action // nil: the gateway's own request
	trace  *Trace
	slots  slots
	// limited: the request takes a slot of Upstream.limit.
	limited bool
	// several: there are other endpoints. safe: the request may be carried out twice.
	several, safe bool
	// pinned, if not nil, chooses the endpoint; pinnedTo is the one that it had when the
	// request began. follows: the answer ends when the endpoint gets no more requests.
	pinned   *Pinned
	pinnedTo *endpoint
	follows  bool

	body       retry.Body
	tried      []*endpoint    // one for each attempt
	attempts   int            // without those that were refused
	sent       bool           // a server may have seen some of the request
	overBudget bool           // the retry budget was empty
	fallback   *http.Response // the answer that is used if there is no better one
}

// send sends a request by the server's policy.
func (u *Upstream) send(req *http.Request, k kind) (*http.Response, error) {
	l := u.newRetryLoop(req, k)
	return l.run()
}

// newRetryLoop prepares a request, and adds the gateway's id to its header.
func (u *Upstream) newRetryLoop(req *http.Request, k kind) retryLoop {
	u.via.add(req.Header)
	ctx := req.Context()
	l := retryLoop{u: u, b: u.balancer.Load(), kind: k, req: req, act: resource.ActionFrom(ctx), body: retry.NewBody(req)}
	l.trace, _ = ctx.Value(TraceKey{}).(*Trace)
	l.policy = l.b.policy
	l.limited = l.isLimited()
	l.several, l.safe = l.b.only == nil, k != upgrade && retry.Safe(req.Method)
	return l
}

// run takes the slots of the request, sends it and lets the answer keep the slots.
func (l *retryLoop) run() (*http.Response, error) {
	l.u.budget.Count(time.Now())
	if err := l.takeSlots(); err != nil {
		l.body.Close()
		return nil, err
	}
	res, err := l.attemptAll()
	if l.fallback != nil && l.fallback != res {
		go discard(l.fallback)
	}
	if err != nil {
		l.slots.release()
		l.body.Close()
		return nil, err
	}
	res.Request = l.req
	l.b, l.body = nil, retry.Body{} // the answer, which keeps the rest, may last
	l.keepSlots(res)
	return res, nil
}

// attemptAll makes one attempt after the other.
func (l *retryLoop) attemptAll() (*http.Response, error) {
	// Waiting for a slot, or for the body, may have taken long.
	l.b = l.u.balancer.Load()
	l.policy = l.b.policy
	e := l.pick()
	if e == nil {
		return nil, noEndpoint(l.b.err)
	}
	for {
		r := l.attempt(e)
		if l.pinned != nil {
			l.pinned.record(l, e, r)
		}
		l.sent = l.sent || r.Sent
		if !l.repeatable(r) {
			return l.result(r)
		}
		l.tried = append(l.tried, e)
		next := l.next(e, r)
		if next == nil || !l.withinBounds(r) {
			return l.result(r)
		}
		if r.Response != nil {
			if l.fallback != nil {
				go discard(l.fallback)
			}
			l.fallback = r.Response
		}
		e = next
		e.retries.Add(1)
	}
}

// pick chooses among the endpoints that were not tried yet.
func (l *retryLoop) pick() *endpoint {
	switch {
	case l.b.only != nil && len(l.tried) == 0:
		return l.b.only
	case l.pinned != nil:
		return l.pinned.pick(l.b, l.pinnedTo, l.tried)
	}
	user, ok := l.userName()
	e, _ := l.b.Pick(user, ok, l.kind != short, l.tried)
	return e
}

// userName returns the name of the request's user.
func (l *retryLoop) userName() (name string, ok bool) {
	if l.act == nil || l.act.User == nil {
		return "", false
	}
	return l.act.User.Name, true
}

// repeatable reports whether the request may be sent again after r, within the bounds.
func (l *retryLoop) repeatable(r retry.Result) bool {
	return l.req.Context().Err() == nil && l.policy.retries() && retry.Allowed(l.safe, r) && l.body.Repeatable()
}

// next chooses the endpoint of the next attempt: e once more if it may only have closed
// an idle connection; else one that was not tried, of those that get requests now; else
// e if it has seen nothing of the request. nil: there is none.
func (l *retryLoop) next(e *endpoint, r retry.Result) *endpoint {
	if len(l.tried) >= maxTried {
		return nil
	}
	if r.Sent && is[*transport.StaleError](r.Err) && slices.Index(l.tried, e) == len(l.tried)-1 { // for the first time
		return e
	}
	l.b = l.u.balancer.Load()
	if l.b.only != e {
		if l.b.only != nil {
			return l.b.only
		}
		if next := l.pick(); next != nil {
			return next
		}
	}
	if r.Err != nil && !r.Sent && !health.IsRefused(r.Err) && (len(l.tried) == 1 || !is[*transport.ConnectError](r.Err)) {
		return e
	}
	return nil
}

// withinBounds reports whether the attempts and the budget permit a retry after r. A
// retry of what no server has seen takes nothing of the budget: the attempt before put
// no load on a server. A refused connection does not count as an attempt.
func (l *retryLoop) withinBounds(r retry.Result) bool {
	if !health.IsRefused(r.Err) {
		l.attempts++
	}
	switch {
	case l.attempts >= l.policy.Retries.Attempts, l.overBudget:
		return false
	case !r.Sent:
		return true
	case l.u.budget.Take(time.Now(), l.policy.Retries.BudgetPercent, l.policy.Retries.MinPerSecond):
		return true
	}
	l.overBudget = true
	l.u.outOfBudget.Add(1)
	return false
}

// result is what the caller gets: the last answer, or an earlier one if there is none.
func (l *retryLoop) result(r retry.Result) (*http.Response, error) {
	switch {
	case r.Err == nil:
		return r.Response, nil
	case l.fallback != nil && l.req.Context().Err() == nil:
		return l.fallback, nil
	case !l.sent && !retry.IsClients(r.Err):
		return nil, &UnprocessedError{r.Err}
	}
	return nil, r.Err
}

// discard reads what is left of an answer that is not used, if that is little.
func discard(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDiscarded)
	_ = res.Body.Close()
}

// client returns the context of the request.
func (l *retryLoop) client() context.Context { return l.req.Context() }

// deadlineSlack is the part of the response header timeout that a request may have spent before
// it was sent. If no more than that is missing at the deadline of the request, the server had
// about the whole timeout.
const deadlineSlack = 20

// headerTimeout returns how long the answer may take to begin; 0: as long as the request
// lasts.
func (l *retryLoop) headerTimeout() time.Duration {
	limit := l.policy.Timeouts.ResponseHeader
	if l.b.slow && l.pinned == nil {
		return min(cmp.Or(limit, slowWait), slowWait)
	}
	if deadline, ok := l.client().Deadline(); !l.limited || ok && time.Until(deadline) <= limit {
		return 0
	}
	return limit
}
