package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

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

// retryLoop sends one request to endpoints until one answers or the request must not
// be repeated. It belongs to the request's goroutine.
type retryLoop struct {
	u      *Upstream
	b      *balancer
	policy *Policy
	kind   kind
	req    *http.Request
	act    *resource.Action // nil: the gateway's own request
	trace  *Trace
	// limited: the request takes a slot of Upstream.limit. alone: it has one of
	// Upstream.lasting. user holds them.
	limited, alone bool
	user           string
	// several: there are other endpoints. safe: the request may be carried out twice.
	several, safe bool
	// pinned, if not nil, chooses the endpoint; pinnedTo is the one that it had when the
	// request began. follows: the answer ends when the endpoint gets no more requests.
	pinned   *Pinned
	pinnedTo *endpoint
	follows  bool

	taken    bool           // a server may have taken some of the request
	denied   bool           // the retry budget was empty
	kept     []byte         // the body, if isKept
	isKept   bool           // the body is small enough to be sent again
	stream   *streamed      // the body as the present attempt sends it, if it is not kept
	tried    []*endpoint    // one for each attempt
	attempts int            // those that a server may have seen
	held     *http.Response // the answer that is used if there is no better one
}

// send sends a request by the server's policy.
func (u *Upstream) send(req *http.Request, k kind) (*http.Response, error) {
	l := u.newRetryLoop(req, k)
	return l.run()
}

// newRetryLoop prepares a request, and adds the gateway's id to its header.
func (u *Upstream) newRetryLoop(req *http.Request, k kind) retryLoop {
	u.via.mark(req.Header)
	ctx := req.Context()
	l := retryLoop{u: u, b: u.balancer.Load(), kind: k, req: req, act: resource.ActionFrom(ctx), trace: TraceFrom(ctx)}
	l.policy = l.b.policy
	l.limited = l.takesSlot()
	l.several, l.safe = l.b.only == nil, k != upgrade && Safe(req.Method)
	return l
}

// Safe reports whether a method changes nothing, so that a request may be sent twice
// (RFC 9110, 9.2.1).
func Safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}

// run takes the slots of the request, sends it and lets the answer keep the slots.
func (l *retryLoop) run() (*http.Response, error) {
	l.u.budget.Count(time.Now())
	if err := l.takeSlots(); err != nil {
		closeBody(l.req)
		return nil, err
	}
	res, err := l.attemptAll()
	if l.held != nil && l.held != res {
		go discard(l.held)
	}
	if err != nil {
		l.releaseSlots()
		if l.isKept || l.stream != nil {
			closeBody(l.req)
		}
		return nil, err
	}
	res.Request = l.req
	l.keepSlots(res)
	return res, nil
}

func (l *retryLoop) attemptAll() (*http.Response, error) {
	if hasBody(l.req) {
		// A slow client holds no connection, and of a small body that cannot be read
		// nothing is sent.
		var err error
		if l.kept, l.isKept, err = keepBody(l.req); err != nil {
			return nil, err
		}
	}
	// Waiting for a slot, or for the body, may have taken long.
	l.b = l.u.balancer.Load()
	l.policy = l.b.policy
	e := l.pick()
	if e == nil {
		closeBody(l.req)
		return nil, &NoEndpointError{l.b.err}
	}
	for {
		res, sent, err := l.attempt(e)
		if l.pinned != nil {
			l.pinned.record(l, e, res, err)
		}
		l.taken = l.taken || sent
		why := l.reason(res, sent, err)
		if why == "" {
			return l.result(res, err)
		}
		l.tried = append(l.tried, e)
		next := l.next(e, sent, err)
		if next == nil || !l.afford(sent, err) {
			return l.result(res, err)
		}
		l.trace.setRetry(why)
		if res != nil {
			if l.held != nil {
				go discard(l.held)
			}
			l.held = res
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

// userName names the user who sends the request.
func (l *retryLoop) userName() (name string, ok bool) {
	if l.act == nil || l.act.User == nil {
		return "", false
	}
	return l.act.User.Name, true
}

// next chooses the endpoint of the next attempt. If e may only have closed a connection
// while it was idle, it is e once more; else one that was not tried, of those that get
// requests now; and e if there is none and it has seen nothing of the request.
func (l *retryLoop) next(e *endpoint, sent bool, err error) *endpoint {
	if len(l.tried) >= maxTried {
		return nil
	}
	if sent && isStale(err) && l.timesTried(e) == 1 {
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
	if err != nil && !sent && !decisive(err) && (len(l.tried) == 1 || !isConnect(err)) {
		return e
	}
	return nil
}

// timesTried is how many attempts went to an endpoint.
func (l *retryLoop) timesTried(e *endpoint) (n int) {
	for _, t := range l.tried {
		if t == e {
			n++
		}
	}
	return n
}

// result is what the caller gets: the last answer, or an earlier one if there is none.
func (l *retryLoop) result(res *http.Response, err error) (*http.Response, error) {
	if err != nil && l.held != nil && l.req.Context().Err() == nil {
		return l.held, nil
	}
	if err != nil && !l.taken && !isClients(err) {
		err = &UntakenError{err}
	}
	return res, err
}

// reason says why the request may be repeated; "" if it must not be. A request of which
// no server has taken anything may be, whatever its method; any other only if it is
// safe.
func (l *retryLoop) reason(res *http.Response, sent bool, err error) string {
	switch {
	case l.req.Context().Err() != nil, !l.policy.retries():
		return ""
	case err != nil && isClients(err), !l.safe && (err == nil || sent), err == nil && !failedElsewhere(res):
		return ""
	case !l.repeatable():
		return ""
	case err == nil:
		return "the server answered " + res.Status
	case !sent:
		return "it was not sent: " + err.Error()
	}
	return "no answer: " + err.Error()
}

// failedElsewhere reports whether an answer says that the server, not the request, is
// the reason, so that another endpoint may do better.
func failedElsewhere(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusTooManyRequests:
		return res.Header.Get("Retry-After") != ""
	}
	return false
}

// repeatable reports whether the body can be sent from its beginning.
func (l *retryLoop) repeatable() bool {
	return !hasBody(l.req) || l.isKept || l.stream != nil && l.stream.move()
}

// afford reports whether a retry may be made. One of which the server has seen nothing
// takes nothing of the budget: the attempt before put no load on a server. A refused
// connection does not count as an attempt.
func (l *retryLoop) afford(sent bool, err error) bool {
	if err == nil || !decisive(err) {
		l.attempts++
	}
	if l.attempts >= l.policy.Attempts || l.denied {
		return false
	}
	if err != nil && !sent {
		return true
	}
	if l.u.budget.Take(time.Now(), l.policy.RetryPercent, l.policy.RetriesPerSecond) {
		return true
	}
	l.denied = true
	l.u.outOfBudget.Add(1)
	return false
}

// discard reads what is left of an answer that is not used, if that is little.
func discard(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, maxDiscarded)
	_ = res.Body.Close()
}

// client returns the context of the request.
func (l *retryLoop) client() context.Context { return l.req.Context() }

// deadlineSlack: a request whose own deadline is earlier than the response header
// timeout by no more than this part of that gives the server about the whole timeout:
// some of it passed before the request was sent.
const deadlineSlack = 20

// headerTimeout returns how long the answer may take to begin; 0: as long as the
// request lasts. whole says that the request's own deadline leaves the server about
// that long, or longer.
func (l *retryLoop) headerTimeout() (limit time.Duration, whole bool) {
	limit = l.policy.ResponseHeader
	if !l.limited || limit <= 0 {
		return 0, false
	}
	deadline, ok := l.client().Deadline()
	if !ok {
		return limit, true
	}
	if left := time.Until(deadline); left <= limit {
		return 0, left >= limit-limit/deadlineSlack
	}
	return limit, true
}

// deadlineExceeded reports whether the request's own deadline has passed.
func (l *retryLoop) deadlineExceeded() bool {
	return errors.Is(l.client().Err(), context.DeadlineExceeded)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
