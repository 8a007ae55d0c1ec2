package serve

import (
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
// answered so: else nobody who said so would be counted. system:masters is never refused, so that
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
		if !kind.enter(slices.Contains(action.User.Groups, resource.GroupMasters)) {
			s.tooMany(w, r, action)
			return
		}
		if x := exchangeFrom(r.Context()); action.Streams || x.leaving != nil {
			x.place = sync.OnceFunc(kind.leave)
			defer x.place()
		} else {
			defer kind.leave()
		}
		if action.Streams {
			serveLong(next, w, r) // it counts until it is answered with a stream
			return
		}
		next(w, r)
	}
}

func (s *Server) tooMany(w http.ResponseWriter, r *http.Request, action *resource.Action) {
	s.metrics.terminated(r, action, http.StatusTooManyRequests)
	rest.WriteStatus(w, r, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1))
}

// inFlight counts the requests of one kind that are at work.
type inFlight struct {
	kind  string // as its metrics say
	limit int64  // below 0: none
	now   atomic.Int64
}

// enter counts one more, unless there are too many; force has it counted
// anyway.
func (f *inFlight) enter(force bool) bool {
	if n := f.now.Add(1); f.limit >= 0 && n > f.limit && !force {
		f.now.Add(-1)
		return false
	}
	return true
}

func (f *inFlight) leave() { f.now.Add(-1) }
