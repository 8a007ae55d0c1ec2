package filter

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/response"
)

// deadline gives every request that is not long-running a deadline: the configured time,
// or ?timeout if that is shorter. If it passes before the handler has written anything,
// the response is 504; else the connection is cut.
//
// The handler runs on this goroutine and should heed its context; its reads of the body
// and its writes are cut off in any case. A handler that continues keeps its slot in
// flight. A connection that is hijacked in time has no deadline from then on.
func (c *Chain) deadline(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if resource.ActionFrom(r.Context()).LongRunning() {
			next(w, r)
			return
		}
		c.withDeadline(next, w, r)
	}
}

func (c *Chain) withDeadline(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	timeout, err := c.timeoutOf(r)
	if err != nil {
		c.auditRefusal(r, err.Error())
		response.WriteStatus(w, r, err)
		return
	}
	rs := stateOf(r.Context())
	defer rs.limitTime(timeout)()
	d, returned := newDeadlineWriter(w, r, rs, c.metrics), false
	// context.AfterFunc would cost twice as much, and also run if the client has gone.
	d.start(timeout)
	defer func() {
		d.stop()
		if state := d.state.Load(); state == cut || state == answered {
			c.metrics.EndedAfterTimeout(returned)
		}
		switch {
		case returned:
			d.finish()
		case d.state.Load() == answered:
			// The client has the whole 504, so the connection is not cut.
			if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
				panic(cause)
			}
		} // recovery.go handles any other panic
	}()
	next(d, r)
	returned = true
}

// limitTime sets the deadline of the request's context, which no other goroutine has yet.
func (rs *requestState) limitTime(timeout time.Duration) (cancel func()) {
	if rs.upgrade != nil {
		return rs.upgrade.limitTime(timeout)
	}
	rs.ctx.Context, cancel = context.WithTimeout(rs.ctx.Context, timeout)
	return cancel
}

// timeoutOf returns the time until the deadline.
func (c *Chain) timeoutOf(r *http.Request) (time.Duration, error) {
	timeout, err := c.askedTimeout(r)
	return timeout - min(c.cfg.Ahead, timeout/10), err
}

// askedTimeout returns ?timeout, or RequestTimeout if that is shorter.
func (c *Chain) askedTimeout(r *http.Request) (time.Duration, error) {
	limit := c.cfg.RequestTimeout
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
