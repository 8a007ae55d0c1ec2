package filter

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http/httpguts"

	"portico/resource/serve/inflight"
)

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
	if !c.lifecycle.AddShort() {
		c.reject(w, r)
		return
	}
	rs := stateOf(r.Context())
	ctx, end := context.WithCancelCause(rs.ctx.Context)
	rs.ctx.Context = ctx // no other goroutine has the context yet
	defer end(nil)
	rs.short = true
	rs.upgrade.ctx, rs.upgrade.lifecycle, rs.upgrade.end = ctx, &c.lifecycle, end
	next(w, r)
}

// begin calls hijack and makes the request long-running. It fails if the deadline of the
// request has passed, or if the server is shutting down.
func (u *upgrade) begin(rs *requestState, hijack func() error) error {
	if !u.lifecycle.AddLong(&u.end) {
		return inflight.ErrShuttingDown
	}
	err := error(http.ErrHandlerTimeout)
	if u.timer.Stop() {
		err = hijack()
	}
	if err != nil {
		u.lifecycle.RemoveLong(&u.end)
		return err
	}
	u.lifecycle.RemoveShort()
	rs.short, rs.endLong = false, &u.end
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
