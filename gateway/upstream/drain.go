package upstream

import (
	"math/rand/v2"
	"time"
)

// An endpoint that is removed gets no more requests, and its idle connections are
// closed. Requests in progress finish. Watches, which would not, are ended one by one
// at random times: their clients continue at another endpoint from where they are, and
// do not all come at once. The same holds for the watches of an endpoint with the
// weight 0, while another one gets requests.

// drainWithin is how long it takes until the last watch of a draining endpoint ends.
const drainWithin = 30 * time.Second

// remove drains an endpoint that is no longer one of the server's; mu is held.
func (u *Upstream) remove(e *endpoint) {
	e.transport.Renew()
	u.setDraining(e, true)
	e.endFollowed()
}

// drainUnused drains the endpoints with the weight 0, if others get requests, and ends
// the answers of Streams of all endpoints that get none; mu is held.
func (u *Upstream) drainUnused(b *balancer) {
	if u.closed {
		return // all are removed
	}
	for _, e := range u.endpoints {
		if b.elsewhere(e) {
			e.endFollowed()
		}
		u.setDraining(e, e.Weight == 0 && len(b.List) > 0)
	}
}

// setDraining begins or ends the draining of an endpoint's watches.
func (u *Upstream) setDraining(e *endpoint, draining bool) {
	if e.draining.Swap(draining) == draining || !draining {
		return
	}
	for a := range e.watches.Range {
		u.drainLater(e, a.(*answer))
	}
}

// drainLater ends a watch of a draining endpoint, unless that drains no longer then.
func (u *Upstream) drainLater(e *endpoint, a *answer) {
	time.AfterFunc(rand.N(u.drainWithin), func() {
		if e.draining.Load() {
			a.drain()
		}
	})
}

// endFollowed ends the answers of Streams, without waiting.
func (e *endpoint) endFollowed() {
	for a := range e.followed.Range {
		go a.(*answer).drain() // closing an answer may take a while
	}
}

// listStream registers the body of a long-running answer, so that it ends when its
// endpoint drains. The endpoint may have begun to while the request was sent.
func (a *attempt) listStream(body *answer) {
	switch {
	case a.follows:
		body.in = &a.e.followed
		body.in.Store(body, nil)
		if a.e.draining.Load() || a.u.balancer.Load().elsewhere(a.e) {
			a.e.endFollowed()
		}
	case a.kind == long && a.act != nil && a.act.Verb == "watch":
		body.in = &a.e.watches
		body.in.Store(body, nil)
		if a.e.draining.Load() {
			a.u.drainLater(a.e, body)
		}
	}
}
