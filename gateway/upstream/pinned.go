package upstream

import (
	"errors"
	"net/http"
	"slices"
	"sync/atomic"

	"context"
)

// Pinned sends requests whose answers belong together to one endpoint, for as long as
// that gets requests and answers: endpoints may run different versions of a server, and
// documents about what it serves must not alternate between them. The first endpoint is
// the same in every gateway.
//
// Neither the answers nor connections that break count for or against an endpoint:
// these requests are repeated all the time, whether or not the server has what they ask
// for. A connection that cannot be made counts. The requests have no deadline but their
// own and take no slot: they are the gateway's.
//
// Safe for concurrent use.
type Pinned struct {
	u *Upstream
	// next is the endpoint of the next request; nil: there was none yet.
	next atomic.Pointer[endpoint]
}

// Pinned returns a new one.
func (u *Upstream) Pinned() *Pinned { return &Pinned{u: u} }

// RoundTrip implements http.RoundTripper.
func (p *Pinned) RoundTrip(req *http.Request) (*http.Response, error) { return p.send(req, false) }

// Streams is the same for requests with answers that last. An answer ends as soon as
// its endpoint gets no more requests while another does: it fails its checks, is
// ejected, has the weight 0 or is removed. The client then asks again, and gets to
// another endpoint.
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

// record records how the request ended at an endpoint. Of concurrent requests, the
// first decides.
func (p *Pinned) record(l *retryLoop, e *endpoint, res *http.Response, err error) {
	switch {
	case errors.Is(l.client().Err(), context.Canceled):
		return // it may be anyone's fault
	case err != nil || failedElsewhere(res):
		e = p.pick(l.u.balancer.Load(), nil, append(slices.Clip(l.tried), e))
	}
	if p.next.CompareAndSwap(l.pinnedTo, e) {
		l.pinnedTo = e
	}
}

// list has an answer end when its endpoint drains, if it is one that should.
func (a *attempt) list(body *answer) {
	switch {
	case a.follows:
		body.in = &a.e.followed
		body.in.add(body)
		if a.e.drains.Load() || a.u.balancer.Load().elsewhere(a.e) {
			a.e.endFollowed() // since the request began
		}
	case a.kind == long && a.act != nil && a.act.Verb == "watch":
		body.in = &a.e.watches
		body.in.add(body)
		if a.e.drains.Load() {
			a.u.drainLate(a.e)
		}
	}
}

// endFollowed ends the answers of Streams, without waiting.
func (e *endpoint) endFollowed() {
	if n := e.followed.count(); n > 0 {
		go e.followed.end(n) // closing an answer may take a while
	}
}
