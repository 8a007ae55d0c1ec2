package filter

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/response"
	"portico/resource/serve/inflight"
	"portico/resource/serve/metrics"
)

// rejectDuringShutdown answers 429 to new requests once the server is shutting down and
// load balancers have had time to notice. Kubernetes clients retry on a new connection.
// Health and metrics are answered until the end.
func (c *Chain) rejectDuringShutdown(w http.ResponseWriter, r *http.Request) bool {
	if c.lifecycle.Rejecting() && !isProbe(r.URL.Path) {
		c.reject(w, r)
		return false
	}
	return true
}

func (c *Chain) reject(w http.ResponseWriter, r *http.Request) {
	c.metrics.Terminated(r, resource.ActionFrom(r.Context()), http.StatusTooManyRequests)
	w.Header().Set("Connection", "close")
	response.WriteStatus(w, r, apierrors.NewTooManyRequests("The apiserver is shutting down, please try again later.", 5))
}

// isProbe reports whether the path is about the server itself.
func isProbe(path string) bool {
	return path == "/metrics" || path == metrics.PathSLIs || isHealth(path)
}

func isHealth(path string) bool {
	for _, endpoint := range [...]string{"/healthz", "/livez", "/readyz"} {
		if rest, found := strings.CutPrefix(path, endpoint); found && (rest == "" || rest[0] == '/') {
			return true
		}
	}
	return false
}

// track adds the request to the lifecycle until untrack: shutdown waits for short requests
// and ends the contexts of long-running ones.
func (c *Chain) track(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rs := stateOf(r.Context())
		switch {
		case rs.action.LongRunning():
			c.trackLong(next, w, r)
			return
		case rs.upgrade != nil:
			c.trackUpgrade(next, w, r)
			return
		}
		if !rs.enter(&c.lifecycle.Short, nil) && !isProbe(rs.action.Path) {
			c.reject(w, r) // shutdown began after rejectDuringShutdown
			return
		}
		next(w, r)
	}
}

func (c *Chain) trackLong(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	rs := stateOf(r.Context())
	if !rs.enter(&c.lifecycle.Long, &cancel) {
		c.reject(w, r)
		return
	}
	if rs.upgrade != nil {
		rs.upgrade.ctx = ctx
	}
	next(w, r.WithContext(ctx))
}

// enter adds the request to a group of the lifecycle; false if that is closed.
func (rs *requestState) enter(group *inflight.Group, cancel *context.CancelCauseFunc) bool {
	if !group.Add(cancel) {
		return false
	}
	rs.group, rs.cancel = group, cancel
	return true
}

// untrack removes the request from the lifecycle after everything has observed its end.
func (rs *requestState) untrack() {
	rs.leaveInFlight()
	if rs.longSlot != nil {
		rs.longSlot.Release(rs.slotUser)
	}
	if rs.group != nil {
		rs.group.Remove(rs.cancel)
	}
}

// closeDelay is how long a handler has to close its hijacked connection at shutdown before
// it is closed for it.
const closeDelay = time.Second

// upgrade is a request that asks for another protocol (WebSocket, SPDY). Servers behind the
// gateway have connect subresources of their own, and REST servers any path, so the request
// line does not say whether the protocol will change. Until the connection is hijacked the
// request is short: it has a deadline and a slot in flight, and shutdown waits for it. From
// then on it is long-running. If it is long-running by its Action it always is. Only the
// request's goroutine uses it.
type upgrade struct {
	ctx context.Context // shutdown ends the request by ending it

	// For requests that are not long-running yet:
	lifecycle *inflight.Lifecycle
	end       context.CancelCauseFunc // of ctx
	deadline  time.Time
	timer     *time.Timer // ends ctx at the deadline
}

// asksForUpgrade reports whether a request asks for another protocol. Over HTTP/2 it cannot:
// extended CONNECT is not offered.
func asksForUpgrade(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.Header["Upgrade"] != nil && httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade")
}

// trackUpgrade is track for requests that ask for another protocol.
func (c *Chain) trackUpgrade(next http.HandlerFunc, w http.ResponseWriter, r *http.Request) {
	rs := stateOf(r.Context())
	if !rs.enter(&c.lifecycle.Short, nil) {
		c.reject(w, r)
		return
	}
	ctx, end := context.WithCancelCause(rs.ctx.Context)
	rs.ctx.Context = ctx // no other goroutine has the context yet
	defer end(nil)
	rs.upgrade.ctx, rs.upgrade.lifecycle, rs.upgrade.end = ctx, &c.lifecycle, end
	next(w, r)
}

// begin calls hijack and makes the request long-running. It fails if the deadline of the
// request has passed, or if the server is shutting down.
func (u *upgrade) begin(rs *requestState, hijack func() error) error {
	if !u.lifecycle.Long.Add(&u.end) {
		return inflight.ErrShuttingDown
	}
	err := error(http.ErrHandlerTimeout)
	if u.timer.Stop() {
		err = hijack()
	}
	if err != nil {
		u.lifecycle.Long.Remove(&u.end)
		return err
	}
	u.lifecycle.Short.Remove(nil)
	rs.group, rs.cancel = &u.lifecycle.Long, &u.end
	return nil
}

// closeOnShutdown closes a hijacked connection at shutdown, closeDelay after the handler's
// context has ended. u may be nil.
func (u *upgrade) closeOnShutdown(conn net.Conn) {
	if u == nil || u.ctx == nil {
		return
	}
	context.AfterFunc(u.ctx, func() {
		if errors.Is(context.Cause(u.ctx), inflight.ErrShuttingDown) {
			time.AfterFunc(closeDelay, func() { _ = conn.Close() })
		}
	})
}

// limitTime ends the context after the timeout unless the connection is hijacked before. The
// deadline of context.WithTimeout cannot be removed. The context reports Canceled;
// context.DeadlineExceeded is its cause.
func (u *upgrade) limitTime(timeout time.Duration) (cancel func()) {
	u.deadline = time.Now().Add(timeout)
	u.timer = time.AfterFunc(timeout, func() { u.end(context.DeadlineExceeded) })
	return func() { u.timer.Stop() }
}
