package serve

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/rest"
)

// deadline gives every request that is not long-running a deadline: the
// configured time, or the shorter one of ?timeout. When it passes before the
// handler has written anything the answer is 504; after that, the connection is
// cut (contract 11.3).
//
// The handler runs on this goroutine and is expected to heed its context; its
// reads of the body and its writes are cut off in any case. One that heeds
// nothing keeps its place among the requests in flight for as long as it really
// runs. One that leaves HTTP in time has no deadline from then on.
func (s *Server) deadline(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if resource.ActionFrom(r.Context()).LongRunning() {
			next(w, r)
			return
		}
		s.withDeadline(next, w, r)
	}
}

func (s *Server) withDeadline(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	timeout, err := s.timeoutOf(r)
	if err != nil {
		s.auditRefusal(r, err.Error())
		rest.WriteStatus(w, r, err)
		return
	}
	x := exchangeFrom(r.Context())
	defer x.limitTime(timeout)()
	d, returned := s.deadlines.get(w, r, x), false
	// Not context.AfterFunc: it costs twice as much, and that the client has
	// gone is nothing that anybody has to be told.
	d.start(timeout)
	defer func() {
		d.stop()
		if state := d.state.Load(); state == cut || state == answered {
			s.metrics.EndedAfterTimeout(returned)
		}
		switch {
		case returned:
			d.finish()
			s.deadlines.put(d)
		case d.state.Load() == answered:
			// The client has a whole answer. That the handler's own came too
			// late is no reason to cut it off.
			if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
				panic(cause)
			}
		} // any other panic is for who answers those
	}()
	next(d, r)
	returned = true
}

// limitTime has the request's context end after the time. Nobody else has that
// context yet. The returned function ends it.
func (x *exchange) limitTime(timeout time.Duration) (cancel func()) {
	if l := x.leaving; l != nil {
		l.term = newTerm(x.ctx.Context, timeout)
		x.ctx.Context = l.term
		return l.term.cancel
	}
	x.ctx.Context, cancel = context.WithTimeout(x.ctx.Context, timeout)
	return cancel
}

// timeoutOf returns how long a request may take.
func (s *Server) timeoutOf(r *http.Request) (time.Duration, error) {
	timeout, err := s.askedTimeout(r)
	return timeout - min(s.cfg.Ahead, timeout/10), err
}

// askedTimeout is the time that the client allows, or the server if that is less.
func (s *Server) askedTimeout(r *http.Request) (time.Duration, error) {
	limit := s.cfg.RequestTimeout
	if r.URL.RawQuery == "" {
		return limit, nil
	}
	asked := r.URL.Query().Get("timeout")
	if asked == "" {
		return limit, nil
	}
	timeout, err := time.ParseDuration(asked)
	if err != nil {
		return 0, apierrors.NewBadRequest("invalid timeout specified in the request URL")
	}
	if timeout <= 0 || timeout > limit {
		return limit, nil
	}
	return timeout, nil
}
