package upstream

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
)

// Steady is the way of requests whose answers belong together, like the
// documents that say what a server serves: of endpoints that run different
// versions of it, answers that alternate would make something that none of them
// said. They all go to one endpoint for as long as that gets requests and
// answers. Which it is at first is the same in every gateway.
//
// No answer to them says anything for or against an endpoint, nor does a connection
// that breaks over one: they are asked again and again, whether or not the server has
// what is asked for. That no connection can be made counts as always.
//
// Safe for concurrent use.
type Steady struct {
	u *Upstream
	// next is whom to ask; nil: nobody was asked yet.
	next atomic.Pointer[endpoint]
}

// Steady returns a new way that stays with one endpoint. Its requests have no
// deadline but their own, and no place in the limit: they are the gateway's.
func (u *Upstream) Steady() *Steady { return &Steady{u: u} }

// RoundTrip implements http.RoundTripper.
func (w *Steady) RoundTrip(req *http.Request) (*http.Response, error) { return w.send(req, false) }

func (w *Steady) send(req *http.Request, follows bool) (*http.Response, error) {
	s := w.u.sending(req, long)
	s.stays, s.stayed, s.follows = w, w.next.Load(), follows
	return s.send()
}

// pick chooses the endpoint for a request: the one to stay with, if it gets
// requests and was not tried.
func (w *Steady) pick(p *picks, stayed *endpoint, tried []*endpoint) *endpoint {
	rest := p.without(tried)
	for _, c := range rest.list {
		if c.endpoint == stayed {
			return stayed
		}
	}
	if len(rest.list) == 0 {
		return nil
	}
	return rest.byHash("")
}

// took notes how the request ended at the last endpoint that it was sent to. Of
// requests that run side by side, the first decides.
func (w *Steady) took(s *sending, e *endpoint, res *http.Response, err error) {
	switch {
	case errors.Is(s.req.Context().Err(), context.Canceled):
		return // whose fault that is, nobody knows
	case err != nil || unwell(res):
		e = w.pick(s.u.picks.Load(), nil, append(slices.Clip(s.tried), e))
	}
	if w.next.CompareAndSwap(s.stayed, e) {
		s.stayed = e
	}
}
