package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"portico/gateway/upstream/retry"
	"portico/gateway/upstream/transport"
)

// Pinned sends requests with answers that belong together to one endpoint, for as long as
// that gets requests and answers: endpoints may run different versions of a server, and
// documents about what it serves must not alternate between them. The first endpoint is
// the same in every gateway.
//
// Neither the answers nor connections that break count for or against an endpoint: the
// gateway repeats these requests all the time, whether or not the server has what they
// ask for. A connection that cannot be made counts. The requests have no deadline but
// their own and take no slot. Safe for concurrent use.
type Pinned struct {
	u *Upstream
	// next is the endpoint of the next request; nil: there was none yet.
	next atomic.Pointer[endpoint]
}

// Pinned returns a new Pinned.
func (u *Upstream) Pinned() *Pinned { return &Pinned{u: u} }

// RoundTrip implements http.RoundTripper.
func (p *Pinned) RoundTrip(req *http.Request) (*http.Response, error) { return p.send(req, false) }

// Streams sends requests with answers that last. An answer ends as soon as its endpoint
// gets no more requests while another does: it fails its checks, is ejected, has the
// weight 0 or is removed. The request that follows is sent to another endpoint.
func (p *Pinned) Streams() http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) { return p.send(req, true) })
}

func (p *Pinned) send(req *http.Request, follows bool) (*http.Response, error) {
	l := p.u.newRetryLoop(req, long)
	l.pinned, l.pinnedTo, l.follows = p, p.next.Load(), follows
	return l.run()
}

// pick chooses the endpoint of a request: the one that it is pinned to, if that gets
// requests and was not tried.
func (p *Pinned) pick(b *balancer, pinnedTo *endpoint, tried []*endpoint) *endpoint {
	rest := b.Without(tried)
	switch {
	case len(rest.List) == 0:
		return nil
	case pinnedTo != nil && rest.Has(pinnedTo):
		return pinnedTo
	}
	return rest.ByHash("")
}

// record records how an attempt ended at an endpoint. Of concurrent requests, the first
// decides.
func (p *Pinned) record(l *retryLoop, e *endpoint, r retry.Result) {
	switch {
	case errors.Is(l.client().Err(), context.Canceled):
		return // it says nothing about the endpoint
	case r.Err != nil || retry.FailedElsewhere(r.Response):
		e = p.pick(l.u.balancer.Load(), nil, append(slices.Clip(l.tried), e))
	}
	if p.next.CompareAndSwap(l.pinnedTo, e) {
		l.pinnedTo = e
	}
}

// failureBody is how long the body of a failed check is read, so that its connection can carry the next one. Without this
// bound, a body that does not end would use up the timeout of the check, which would count as no answer.
const failureBody = 100 * time.Millisecond

// Probe sends GET for a path to one endpoint; an answer of 2xx is good. It uses the
// connections that requests use, over HTTP/2 where the server speaks that. identify
// adds the gateway's identity to the header.
func (u *Upstream) Probe(ctx context.Context, endpoint, path string, identify func(http.Header)) error {
	u.mu.Lock()
	e := u.find(endpoint)
	u.mu.Unlock()
	if e == nil {
		return fmt.Errorf("%s is no endpoint of the server", endpoint)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	base := e.transport.Base()
	target, err := url.Parse(base.String() + path)
	if err != nil {
		return fmt.Errorf("check %s: %w", endpoint, err)
	}
	req := (&http.Request{Method: http.MethodGet, URL: target, Host: base.Host, Header: http.Header{}}).WithContext(ctx)
	identify(req.Header)
	u.via.add(req.Header)
	res, _, err := e.transport.RoundTrip(req, transport.HTTP2)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	failed := res.StatusCode < 200 || res.StatusCode > 299
	if failed {
		defer time.AfterFunc(failureBody, cancel).Stop()
	}
	_, err = io.CopyN(io.Discard, res.Body, maxDiscarded) // the next check uses the connection
	switch {
	case failed:
		return &AnswerError{res.StatusCode}
	case err != nil && err != io.EOF:
		return err
	}
	u.checkPassed(e)
	return nil
}

// checkPassed records a passed check that changes no verdict.
func (u *Upstream) checkPassed(e *endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.health.CheckPassed(time.Now()) {
		u.rebuild()
	}
}
