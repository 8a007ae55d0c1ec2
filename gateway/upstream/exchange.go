package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// kind of a request.
type kind int

const (
	short   kind = iota // has a deadline
	long                // has none
	upgrade             // leaves HTTP
)

const (
	// maxTried bounds the endpoints that one request tries; those that refuse
	// connections are no attempts.
	maxTried = 16
	// drained is how much of an answer that nobody wants is read, in bytes, so
	// that its connection can be used again.
	drained = 16 << 10
)

// errHeader ends an attempt whose answer does not begin.
var errHeader = errors.New("the server did not begin to answer in time")

// sending is one request on its way to a server.
type sending struct {
	u       *Upstream
	p       *picks
	policy  *Policy
	kind    kind
	req     *http.Request
	trace   *Trace
	limited bool
	user    string // that holds the places, if limited or alone
	alone   bool   // it has a place among Upstream.lasting
	// several: there are other endpoints. safe: it may be carried out twice.
	several, safe bool
	// stays, if not nil, says which endpoint is asked first: stayed, when the
	// request began.
	stays  *Steady
	stayed *endpoint
	// follows: its answer ends when the endpoint gets no requests any more.
	follows bool
	// taken: a server may have taken some of it. spent: there was no budget for it.
	taken, spent bool

	kept     []byte // the body, if it is kept
	isKept   bool
	stream   *streamed // the body, as it goes to the present endpoint
	tried    []*endpoint
	attempts int            // that a server may have seen
	held     *http.Response // an answer that is given if there is no better one
}

// send sends a request by the server's policy.
func (u *Upstream) send(req *http.Request, k kind) (*http.Response, error) {
	s := u.sending(req, k)
	return s.send()
}

// sending prepares a request to be sent, and marks its header with the gateway's id.
func (u *Upstream) sending(req *http.Request, k kind) sending {
	u.via.mark(req.Header)
	s := sending{u: u, p: u.picks.Load(), kind: k, req: req, trace: TraceFrom(req.Context())}
	s.policy, s.limited = s.p.policy, takesPlace(req, k)
	s.several, s.safe = s.p.only == nil, k != upgrade && Safe(req.Method)
	return s
}

// send sends the request to one endpoint after the other, until it has an answer
// or may not be sent again.
func (s *sending) send() (*http.Response, error) {
	u, req := s.u, s.req
	u.budget.count(time.Now())
	if s.limited {
		if err := s.enter(); err != nil {
			closeBody(req)
			return nil, err
		}
	}
	if err := s.enterAlone(); err != nil {
		if s.limited {
			u.limit.leave(s.user)
		}
		closeBody(req)
		return nil, err
	}
	res, err := s.run()
	if s.held != nil && s.held != res {
		go discard(s.held)
	}
	if err != nil {
		if s.limited {
			u.limit.leave(s.user)
		}
		if s.alone {
			u.lasting.Release(s.user)
		}
		if s.isKept || s.stream != nil {
			closeBody(req)
		}
		return nil, err
	}
	res.Request = req
	s.claim(res)
	return res, nil
}

func (s *sending) run() (*http.Response, error) {
	if s.several && hasBody(s.req) {
		var err error
		if s.kept, s.isKept, err = keepBody(s.req); err != nil {
			return nil, err
		}
	}
	// Waiting for a place, or for the body, may have taken long.
	s.p = s.u.picks.Load()
	s.policy = s.p.policy
	e := s.next()
	if e == nil {
		closeBody(s.req)
		return nil, &NoEndpointError{s.p.err}
	}
	for {
		res, p, err := s.attempt(e)
		if s.stays != nil {
			s.stays.took(s, e, res, err)
		}
		s.taken = s.taken || p != unsent
		why := s.again(e, res, p, err)
		if why == "" {
			return s.end(res, err)
		}
		s.tried = append(s.tried, e)
		next := s.other(e, p, err)
		if next == nil || !s.afford(p, err) {
			return s.end(res, err)
		}
		s.trace.again(why)
		if res != nil {
			if s.held != nil {
				go discard(s.held)
			}
			s.held = res
		}
		e = next
		e.retries.Add(1)
	}
}

// next chooses the first endpoint.
func (s *sending) next() *endpoint {
	if s.p.only != nil {
		return s.p.only
	}
	return s.pick()
}

// pick chooses among the endpoints that were not tried yet.
func (s *sending) pick() *endpoint {
	if s.stays != nil {
		return s.stays.pick(s.p, s.stayed, s.tried)
	}
	return s.p.pick(s.req, s.kind, s.tried)
}

// other chooses an endpoint that was not tried yet; who gets requests may have
// changed. The same one will do if there is no other and it saw nothing: as often as
// attempts may be made, and twice if no connection could be made, unless nobody listens
// there.
func (s *sending) other(e *endpoint, p progress, err error) *endpoint {
	if len(s.tried) >= maxTried {
		return nil
	}
	s.p = s.u.picks.Load()
	if s.p.only != e {
		if s.p.only != nil {
			return s.p.only
		}
		if next := s.pick(); next != nil {
			return next
		}
	}
	if err != nil && p == unsent && !decisive(err) && (len(s.tried) == 1 || !unconnected(err)) {
		return e
	}
	return nil
}

// end is what the client gets: the last answer, or the one before if there was
// none this time.
func (s *sending) end(res *http.Response, err error) (*http.Response, error) {
	if err != nil && s.held != nil && s.req.Context().Err() == nil {
		return s.held, nil
	}
	if err != nil && !s.taken && !clients(err) {
		err = &UntakenError{err}
	}
	return res, err
}

// again says why a request may be sent again; "" if it may not.
func (s *sending) again(e *endpoint, res *http.Response, p progress, err error) string {
	if s.req.Context().Err() != nil || !s.policy.retries() {
		return ""
	}
	switch {
	case err != nil && clients(err):
		return ""
	case err == nil && !s.safe, err == nil && !unwell(res), err != nil && p != unsent && !s.safe:
		return ""
	case !s.repeatable():
		return ""
	case err == nil:
		return "the server answered " + res.Status
	case p == unsent:
		return "it was not sent: " + err.Error()
	}
	return "no answer: " + err.Error()
}

// unwell reports whether an answer says that the server, not the request, is
// the reason: another endpoint may do better.
func unwell(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusTooManyRequests:
		return res.Header.Get("Retry-After") != ""
	}
	return false
}

// repeatable reports whether the body can be sent from its beginning.
func (s *sending) repeatable() bool {
	return !hasBody(s.req) || s.isKept || s.stream != nil && s.stream.move()
}

// afford reports whether a retry may be made. One of which the server saw nothing
// costs nothing: the first attempt put no load on anybody. And where nobody
// listens, the attempt was none.
func (s *sending) afford(p progress, err error) bool {
	if err == nil || !decisive(err) {
		s.attempts++
	}
	if s.attempts >= s.policy.Attempts || s.spent {
		return false
	}
	if err != nil && p == unsent {
		return true
	}
	if s.u.budget.take(time.Now(), s.policy.RetryPercent, s.policy.RetriesPerSecond) {
		return true
	}
	s.spent = true
	s.u.outOfBudget.Add(1)
	return false
}

// discard reads what is left of an answer that nobody wants, if that is little.
func discard(res *http.Response) {
	_, _ = io.CopyN(io.Discard, res.Body, drained)
	_ = res.Body.Close()
}

// wholeTimeShare: a request whose own time is shorter than that for the header of
// an answer by no more than this part of it waits as long as that, for all that
// the server can say: some of it went before the request was sent on.
const wholeTimeShare = 20

// withinHeader returns how long the answer may take to begin; 0: as long as the
// request lasts anyway. whole says that this is about as long, or longer.
func (s *sending) withinHeader() (limit time.Duration, whole bool) {
	limit = s.policy.ResponseHeader
	if !s.limited || limit <= 0 {
		return 0, false
	}
	deadline, ok := s.req.Context().Deadline()
	if !ok {
		return limit, true
	}
	if left := time.Until(deadline); left <= limit {
		return 0, left >= limit-limit/wholeTimeShare
	}
	return limit, true
}

// attempt sends the request to one endpoint, and judges that by what comes back.
func (s *sending) attempt(e *endpoint) (*http.Response, progress, error) {
	a := attempt{sending: s, e: e}
	out := a.prepare()
	var ended func(Attempt)
	if s.trace != nil {
		a.started = time.Now()
		if s.trace.Sending != nil {
			out = own(out, a.req)
			out.Header = out.Header.Clone() // an attempt that was given up may still read the one before
			ended = s.trace.Sending(e.URL, out.Header)
		}
	}
	e.begin(s.kind)
	e.requests.Add(1)
	res, p, err := e.ways.send(out, a.way(), &a)
	if err == nil && (res.StatusCode < 100 || res.StatusCode > 999) {
		_ = res.Body.Close()
		res, err = nil, fmt.Errorf("the server answered with the status %d", res.StatusCode)
	}
	a.headed()
	if err != nil {
		e.end(s.kind)
		err = a.judgeError(p, err)
	} else {
		a.judge(res)
		a.wrap(res)
	}
	if s.trace != nil {
		record := a.record(err)
		if res != nil {
			record.Status = res.StatusCode
		}
		s.trace.add(record)
		if ended != nil {
			ended(record)
		}
	}
	return res, p, err
}

// client returns the client's context.
func (s *sending) client() context.Context { return s.req.Context() }
