package filter

import (
	"context"
	"crypto/rand"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/fairshare"
)

// headerAuditID, in canonical form, identifies a request in the logs of all processes.
const headerAuditID = "Audit-Id"

// requestState is the filters' state of one request and its outermost response writer
// (response.go). Only the request's goroutine uses it, except for atomic fields and where
// a field says otherwise.
type requestState struct {
	http.ResponseWriter
	start  time.Time
	action *resource.Action
	acting *resource.Action // after impersonation; nil before it
	ctx    stateContext     // the request's context below
	client context.Context  // ends when the client has gone

	// auditID, cacheControl and closing are put into the header when it is written: a
	// reverse proxy clears the header after each informational response.
	auditID [1]string // "" until it is known
	// onHeader, if not nil, is called once with the final status.
	onHeader func(code int)
	// slot is the limit in which the request holds a slot in flight, until it ends, is
	// proxied (ReleaseInFlight) or its response turns out to be a stream; nil: it holds
	// none.
	slot atomic.Pointer[fairshare.Limit]
	// longSlot is the limit of long-running requests in which it holds a slot until it
	// ends; nil: it holds none.
	longSlot *fairshare.Limit
	slotUser string   // the user of both slots
	upgrade  *upgrade // nil: the request does not ask for another protocol
	attached atomic.Value
	audited  atomic.Pointer[audit.Request]

	code  int   // 0 until it is written
	bytes int64 // of the body, written so far

	cacheControl bool
	hijacked     bool
	uncounted    bool // another server counts the request
	terminated   bool // the deadline has counted its end
	short        bool // it is counted as short in the lifecycle
	// closing: the connection ends after the requests in flight on it.
	closing atomic.Bool
	// endLong identifies it as long-running in the lifecycle; nil: it is not.
	endLong *context.CancelCauseFunc

	warnings  warnings
	component string // that the request is counted for; "" is the API server
	// mark is the time since start at which the last timed filter ended.
	mark time.Duration
	// filterTimes are the times spent in filters, and in writing the response of an
	// audited request.
	filterTimes struct{ authentication, authorization, impersonation, responseWrite time.Duration }
	phases      atomic.Pointer[phases]

	// For the RequestLog.
	firstByte time.Duration
	upstream  Upstream
	traceID   string
}

type stateKey struct{}

// stateContext has the requestState and the Action as values. It is part of the
// requestState, so it needs no allocation.
type stateContext struct {
	resource.ActionContext
	state *requestState
}

// Value implements context.Context.
func (c *stateContext) Value(key any) any {
	if key == (stateKey{}) {
		return c.state
	}
	if a := c.state.attachment(); a != nil {
		if v := a.Value(key); v != nil {
			return v
		}
	}
	if audited := c.state.audited.Load(); audited != nil {
		if v := audited.Value(key); v != nil {
			return v
		}
	}
	return c.ActionContext.Value(key)
}

// stateOf returns the state of a request; nil outside of a chain.
func stateOf(ctx context.Context) *requestState {
	rs, _ := ctx.Value(stateKey{}).(*requestState)
	return rs
}

// open makes the requestState with the request's Action and id.
func (c *Chain) open(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		rs := &requestState{ResponseWriter: w, start: time.Now(), action: resource.ParseAction(r), client: r.Context()}
		if c.cfg.LongRunning != nil && !rs.action.LongRunning() {
			rs.action.Streams = c.cfg.LongRunning(r, rs.action)
		}
		if asksForUpgrade(r) {
			rs.upgrade = new(upgrade)
		}
		rs.identify(r)
		defer c.untrack(rs)
		rs.ctx = stateContext{resource.ActionContext{Context: rs.client, Action: rs.action}, rs}
		next(rs, r.WithContext(&rs.ctx))
		if rs.code == 0 {
			rs.setHeader(http.StatusOK) // net/http writes it if the handler has not
		}
	}
}

// identify sets the request's audit id: the one in its header, or a new one, which is added
// to the header for a proxy to send on.
func (rs *requestState) identify(r *http.Request) {
	if ids := r.Header[headerAuditID]; len(ids) > 0 && ids[0] != "" {
		rs.auditID[0] = ids[0]
		return
	}
	rs.auditID[0] = newAuditID()
	r.Header[headerAuditID] = rs.auditID[:]
}

// newAuditID is uuid.NewString with fewer allocations.
func newAuditID() string {
	var id uuid.UUID
	_, _ = rand.Read(id[:]) // it never fails
	id[6] = id[6]&0x0f | 4<<4
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// lap returns the time since mark and sets mark to now.
func (rs *requestState) lap() time.Duration {
	before := rs.mark
	rs.mark = time.Since(rs.start)
	return rs.mark - before
}

// user returns the Action with the user as which the request is made. If impersonation is
// forbidden, that is the sender.
func (rs *requestState) user() *resource.Action {
	if rs.acting != nil {
		return rs.acting
	}
	return rs.action
}

func nameOf(u *resource.User) string {
	if u == nil {
		return ""
	}
	return u.Name
}

// CountAs makes the request count for another component than the API server: failures to
// reach a proxied server count for the aggregator.
func CountAs(ctx context.Context, component string) {
	if rs := stateOf(ctx); rs != nil {
		rs.component = component
	}
}

// CountedElsewhere excludes the request from the request metrics, because the server that
// answered it has counted it. It is called on the request's goroutine, before the response
// is written.
func CountedElsewhere(ctx context.Context) {
	if rs := stateOf(ctx); rs != nil {
		rs.uncounted = true
	}
}

// Started returns when the header of the request had been read; the zero time outside of
// a chain.
func Started(ctx context.Context) time.Time {
	if rs := stateOf(ctx); rs != nil {
		return rs.start
	}
	return time.Time{}
}
