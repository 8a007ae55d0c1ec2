package serve

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/fairshare"
	"portico/resource/rest"
	"portico/resource/serve/metrics"
)

// limit answers 429 while more requests are at work than the server takes
// (contract 11.2): reads and writes are counted apart, so that neither can
// starve the other, and no user gets all places. Long-running requests and health
// checks do not count, but a request that may be answered with a stream of events, or
// with another protocol, counts until it is. A request that is passed on to another
// server counts until then (LeavePlace). Users without limits (User.Unlimited) are
// counted and never refused.
func (s *Server) limit(next http.HandlerFunc) http.HandlerFunc {
	reads, writes := fairshare.New(max(0, s.cfg.MaxInFlight), 0), fairshare.New(max(0, s.cfg.MaxMutatingInFlight), 0)
	s.metrics.SetBounds(metrics.Bounds{
		Requests:    map[string]metrics.Bound{"readOnly": reads, "mutating": writes},
		LongRunning: map[string]metrics.Bound{"discovery": s.long.discovery, "other": s.long.all},
		Connections: map[string]metrics.Bound{"user": s.clients.users, "stranger": unauthenticated{s.clients}},
	})
	return func(w http.ResponseWriter, r *http.Request) {
		action := resource.ActionFrom(r.Context())
		if action.LongRunning() && !action.Streams || isHealth(action.Path) {
			next(w, r)
			return
		}
		limit := reads
		if action.Mutating() {
			limit = writes
		}
		if !take(limit, action.User) {
			s.tooMany(w, r, action)
			readRefused(w, r)
			return
		}
		x := exchangeFrom(r.Context())
		x.holder = action.User.Name
		x.place.Store(limit)
		defer x.leavePlace()
		next(w, r)
	}
}

// LeavePlace gives back the place that a request has among those at work, for who
// passes it on: from then on it is up to that server, and to who bounds the requests
// to it, how many it takes; a server that does not answer shall not keep others from
// being asked (contract 8.3). Safe for concurrent use; outside of a chain, and after
// the first time, it does nothing.
func LeavePlace(ctx context.Context) {
	if x := exchangeFrom(ctx); x != nil {
		x.leavePlace()
	}
}

func (x *exchange) leavePlace() {
	if limit := x.place.Swap(nil); limit != nil {
		limit.Release(x.holder)
	}
}

func (s *Server) tooMany(w http.ResponseWriter, r *http.Request, action *resource.Action) {
	s.metrics.Terminated(r, action, http.StatusTooManyRequests)
	rest.WriteStatus(w, r, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1))
}

// take takes a slot for the user and reports whether there was one. A user without
// limits always gets one.
func take(limit *fairshare.Limit, user *resource.User) bool {
	if user.Unlimited() {
		limit.Exceed(user.Name)
		return true
	}
	return limit.Take(user.Name)
}
