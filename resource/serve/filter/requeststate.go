package filter

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/fairshare"
	"portico/resource/rest/body"
	"portico/resource/serve/inflight"
)

// headerAuditID, in canonical form, identifies a request in the logs of all processes.
const headerAuditID = "Audit-Id"

// headerFlowSchema and headerFlowLevel, in canonical form, say how a request was classified. A
// server behind the gateway that classifies by objects of its own does not say so to clients.
const (
	headerFlowSchema = "X-Kubernetes-Pf-Flowschema-Uid"
	headerFlowLevel  = "X-Kubernetes-Pf-Prioritylevel-Uid"
)

// requestState is the filters' state of one request and its outermost response writer. Only the
// request's goroutine uses it, except for atomic fields and where a field says otherwise.
type requestState struct {
	http.ResponseWriter
	start  time.Time
	action *resource.Action
	acting *resource.Action // after impersonation; nil before it
	ctx    stateContext     // the request's context below
	client context.Context  // ends when the client has gone

	// auditID, cacheControl, hsts, origin and closing are put into the header when it is written: a
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
	slotUser string // the user of both slots
	// seats are released with slot; nil: there are none. flowSchema and flowLevel are the uids
	// of what the request was classified as; "" for none.
	seats                 Seats
	body                  body.Hold   // the memory of a body that was read first
	sent                  *clientBody // the body of the request; nil: nothing bounds how long it is awaited
	sending               sending
	flowSchema, flowLevel [1]string
	upgrade               *upgrade // nil: the request does not ask for another protocol
	attached              atomic.Value
	audited               atomic.Pointer[audit.Request]

	code  int   // 0 until it is written
	bytes int64 // of the body, written so far

	hsts   []string // Strict-Transport-Security; nil: none
	origin []string // an allowed origin; nil: none

	authorized bool // authorize need not run again
	// annotationLevel is the level at which the gateway audits the request, and gets annotations; "": it
	// does not.
	annotationLevel string
	cacheControl    bool
	hijacked        bool
	uncounted       bool // another server counts the request
	terminated      bool // the deadline has counted its end
	// closing: the connection ends after the requests in flight on it.
	closing atomic.Bool
	// group is the group of the lifecycle that has the request, under cancel; nil: none.
	group  *inflight.Group
	cancel *context.CancelCauseFunc

	warnings warnings
	// notes are those of the authenticator; nil until it asks for them.
	notes     *authn.Notes
	component string // that the request is counted for; "" is the API server
	// lastLap is the time since start at which the last timed filter ended.
	lastLap time.Duration
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
	switch key {
	case stateKey{}:
		return c.state
	case authn.NotesKey{}:
		return c.state.authenticating()
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

// authenticating returns the notes of the authenticator, which runs on the request's goroutine; nil
// when it has answered.
func (rs *requestState) authenticating() *authn.Notes {
	if rs.notes == nil && rs.action.User == nil {
		rs.notes = &authn.Notes{}
	}
	return rs.notes
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
		defer rs.untrack()
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
	rs.auditID[0] = uuid.NewString()
	r.Header[headerAuditID] = rs.auditID[:]
}

// lap returns the time since lastLap and sets lastLap to now.
func (rs *requestState) lap() time.Duration {
	before := rs.lastLap
	rs.lastLap = time.Since(rs.start)
	return rs.lastLap - before
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

// Attachment is a handler's own state of a request. It costs no context and no copy of
// the request.
type Attachment interface {
	// OnHeader is called with the final header and status of the response before they
	// are sent, on the goroutine that sends them. Fields that it sets replace those of
	// handlers and proxies.
	OnHeader(h http.Header, code int)
	// Value returns a value of the request's context, or nil. Safe for concurrent use.
	Value(key any) any
}

// Attach attaches a to the request of the context; it reports false outside of a
// chain. A request has one Attachment, the last one. All of them have the same type.
func Attach(ctx context.Context, a Attachment) bool {
	rs := stateOf(ctx)
	if rs == nil {
		return false
	}
	rs.attached.Store(a)
	return true
}

// attachment returns the request's Attachment, or nil.
func (rs *requestState) attachment() Attachment {
	a, _ := rs.attached.Load().(Attachment)
	return a
}

// Unwrap is for http.ResponseController.
func (rs *requestState) Unwrap() http.ResponseWriter { return rs.ResponseWriter }

// WriteHeader writes the final status once and ignores further ones and informational ones.
func (rs *requestState) WriteHeader(code int) {
	if rs.code != 0 || informational(code) {
		return
	}
	rs.setHeader(code)
	rs.ResponseWriter.WriteHeader(code)
}

// informational reports whether a status precedes the final one.
func informational(code int) bool {
	return code >= 100 && code < 200 && code != http.StatusSwitchingProtocols
}

// setHeader completes the header and records the status.
func (rs *requestState) setHeader(code int) {
	h := rs.ResponseWriter.Header()
	if rs.auditID[0] != "" {
		h[headerAuditID] = rs.auditID[:]
	}
	if rs.cacheControl && h["Cache-Control"] == nil {
		h["Cache-Control"] = []string{"no-cache, private"}
	}
	if rs.hsts != nil && h[headerHSTS] == nil {
		h[headerHSTS] = rs.hsts
	}
	if rs.origin != nil {
		allowOrigin(h, rs.origin)
	}
	if rs.closing.Load() {
		h["Connection"] = []string{"close"} // over HTTP/2, net/http sends GOAWAY
	}
	rs.warnings.put(h)
	if a := rs.attachment(); a != nil {
		a.OnHeader(h, code)
	}
	if audited := rs.audited.Load(); audited != nil {
		audited.OnHeader(h, code)
		if rs.annotationLevel != "" {
			audited.PutAnnotations(h, rs.annotationLevel)
		}
	}
	if rs.flowSchema[0] != "" {
		h[headerFlowSchema], h[headerFlowLevel] = rs.flowSchema[:], rs.flowLevel[:]
	}
	switch {
	case code == http.StatusSwitchingProtocols || rs.action.Verb == "watch" || rs.action.Streams && resource.IsEventStream(h):
		rs.releaseSlot()
	case rs.seats != nil:
		rs.beginSending()
	}
	rs.code = code
	rs.firstByte = time.Since(rs.start)
	if rs.onHeader != nil {
		rs.onHeader(code)
	}
}

func (rs *requestState) Write(b []byte) (int, error) {
	rs.WriteHeader(http.StatusOK)
	audited := rs.audited.Load()
	if audited == nil {
		n, err := rs.ResponseWriter.Write(b)
		rs.sending.progress()
		rs.bytes += int64(n)
		return n, err
	}
	audited.OnWrite(b)
	start := time.Now()
	n, err := rs.ResponseWriter.Write(b)
	rs.sending.progress()
	rs.filterTimes.responseWrite += time.Since(start)
	rs.bytes += int64(n)
	return n, err
}

// ReadFrom keeps net/http's use of sendfile.
func (rs *requestState) ReadFrom(src io.Reader) (int64, error) {
	rs.WriteHeader(http.StatusOK)
	if audited := rs.audited.Load(); audited != nil {
		src = audited.Reading(src)
	}
	if rs.sending.limit != nil {
		src = sendingReader{src, &rs.sending}
	}
	n, err := io.Copy(rs.ResponseWriter, src)
	rs.bytes += n
	return n, err
}

// Flush implements http.Flusher.
func (rs *requestState) Flush() { _ = rs.FlushError() }

// FlushError is for http.ResponseController.
func (rs *requestState) FlushError() error {
	rs.WriteHeader(http.StatusOK)
	return http.NewResponseController(rs.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. Over HTTP/2 it returns http.ErrNotSupported.
func (rs *requestState) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(rs.ResponseWriter).Hijack()
	if err == nil && !rs.hijacked {
		rs.upgrade.closeOnShutdown(conn)
		rs.hijacked = true
		if rs.code == 0 {
			// The hijacker writes the header from this map.
			rs.setHeader(http.StatusSwitchingProtocols)
		}
	}
	return conn, rw, err
}
