package serve

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// limit answers 429 while more requests are at work than the server takes
// (contract 11.2): reads and writes are counted apart, so that neither can
// starve the other. Long-running requests and health checks do not count, but one
// that says it takes a stream of events, or another protocol, does until it is
// answered so: else nobody who said so would be counted. What is passed on to another
// server counts until then (LeavePlace). system:masters is never refused, so that
// somebody can put things right.
func (s *Server) limit(next http.HandlerFunc) http.HandlerFunc {
	reads := &inFlight{kind: "readOnly", limit: int64(s.cfg.MaxInFlight)}
	writes := &inFlight{kind: "mutating", limit: int64(s.cfg.MaxMutatingInFlight)}
	s.metrics.limitedBy(reads, writes)
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
		x := exchangeFrom(r.Context())
		if !kind.enter(x, action.User) {
			s.tooMany(w, r, action)
			return
		}
		x.place.Store(kind)
		defer x.leavePlace()
		if action.Streams {
			serveLong(next, w, r) // it counts until it is answered with a stream
			return
		}
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
		kind.leave(x)
	}
}

func (s *Server) tooMany(w http.ResponseWriter, r *http.Request, action *resource.Action) {
	s.metrics.terminated(r, action, http.StatusTooManyRequests)
	rest.WriteStatus(w, r, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1))
}

// inFlight counts the requests of one kind that are at work. Half of the places are
// for whoever comes; of the others, which are scarce, nobody gets more than half: one
// user who keeps many requests at work, by not reading the answers, leaves some to
// everybody else.
type inFlight struct {
	kind  string // as its metrics say
	limit int64  // below 0: none
	now   atomic.Int64

	mu     sync.Mutex
	scarce map[string]int64 // the scarce places that a user has, by name
}

// enter counts one more, unless there are too many; masters are counted anyway.
func (f *inFlight) enter(x *exchange, user *resource.User) bool {
	n := f.now.Add(1)
	switch {
	case f.limit < 0 || n <= f.limit-f.limit/2:
		return true
	case slices.Contains(user.Groups, resource.GroupMasters):
		return true
	case n <= f.limit && f.takeScarce(user.Name):
		x.scarce = user
		return true
	}
	f.now.Add(-1)
	return false
}

func (f *inFlight) takeScarce(user string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.scarce[user] >= max(1, f.limit/4) {
		return false
	}
	if f.scarce == nil {
		f.scarce = map[string]int64{}
	}
	f.scarce[user]++
	return true
}

func (f *inFlight) leave(x *exchange) {
	f.now.Add(-1)
	if x.scarce == nil {
		return
	}
	name := x.scarce.Name
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.scarce[name]--; f.scarce[name] == 0 {
		delete(f.scarce, name)
	}
}
