package serve

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/fairshare"
	"portico/resource/rest"
)

// limit answers 429 while more requests are at work than the server takes
// (contract 11.2): reads and writes are counted apart, so that neither can
// starve the other, and no user gets all places. Long-running requests and health
// checks do not count, but a request that may be answered with a stream of events, or
// with another protocol, counts until it is. A request that is passed on to another
// server counts until then (LeavePlace). Users without limits (User.Unlimited) are
// counted and never refused.
func (s *Server) limit(next http.HandlerFunc) http.HandlerFunc {
	reads := &inFlight{"readOnly", fairshare.New(max(0, s.cfg.MaxInFlight), 0)}
	writes := &inFlight{"mutating", fairshare.New(max(0, s.cfg.MaxMutatingInFlight), 0)}
	s.metrics.limitedBy(s.clients, s.long, reads, writes)
	return func(w http.ResponseWriter, r *http.Request) {
		action := resource.ActionFrom(r.Context())
		if action.LongRunning() && !action.Streams || isHealth(action.Path) {
			next(w, r)
			return
		}
		kind := reads
		if action.Mutating() {
			kind = writes
		}
		if !kind.enter(action.User) {
			s.tooMany(w, r, action)
			readRefused(w, r)
			return
		}
		x := exchangeFrom(r.Context())
		x.holder = action.User.Name
		x.place.Store(kind)
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
	if kind := x.place.Swap(nil); kind != nil {
		kind.Release(x.holder)
	}
}

func (s *Server) tooMany(w http.ResponseWriter, r *http.Request, action *resource.Action) {
	s.metrics.terminated(r, action, http.StatusTooManyRequests)
	rest.WriteStatus(w, r, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1))
}

// inFlight counts the requests of one kind that are at work.
type inFlight struct {
	kind string // as its metrics say
	*fairshare.Limit
}

// enter counts one more, unless there are too many.
func (f *inFlight) enter(user *resource.User) bool {
	if user.Unlimited() {
		f.Exceed(user.Name)
		return true
	}
	return f.Take(user.Name)
}
