package filter

import (
	"context"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/fairshare"
	"portico/resource/response"
	"portico/resource/rest/body"
	"portico/resource/serve/inflight"
	"portico/resource/serve/metrics"
)

// Streams of discovery (GET /apis?watch=true) are open to every authenticated user and take
// about 50 KB each. A client needs one; a user gets discoveryStreams, and all users
// together 1/discoveryStreamsShare of the long-running requests.
const (
	discoveryStreams      = 100
	discoveryStreamsShare = 8
)

// FlowControl decides when a request runs. Safe for concurrent use.
type FlowControl interface {
	// Admit returns when the request may run, or is refused. It waits no longer than the
	// context of the request lasts.
	Admit(r *http.Request, a *resource.Action) Admission
	// Classify returns Admission.Limited of a request that is not admitted yet.
	Classify(a *resource.Action) (limited string)
}

// Admission is what FlowControl decided of a request.
type Admission struct {
	// Schema and Level are the uids of the flow schema and of the priority level; "": none.
	Schema, Level string
	// Limited is the name of the priority level; "": it limits no requests.
	Limited string
	// Seats are those that the request holds; nil: it is refused, and may be repeated after
	// RetryAfter seconds.
	Seats      Seats
	RetryAfter int
}

// Seats of a request. Release starts to give them back and does not wait. End must be called when the
// request has ended and before its response ends; it gives them back too, and returns when they are
// free. Later calls of either do nothing.
type Seats interface {
	Release()
	End()
}

// limits are the limits of requests in flight. clients are those that wait for their clients to send
// bodies, and with FlowControl to read responses. memory bounds the bodies; sent bounds the bodies of requests to servers with
// limits of their own, so that these requests take no memory from others.
type limits struct {
	reads, writes, longRunning, discovery *fairshare.Limit

	clients      clientLimits
	memory, sent *body.Budget
}

func newLimits(cfg *Config) *limits {
	clients := max(0, cfg.MaxInFlight) + max(0, cfg.MaxMutatingInFlight)
	if cfg.FlowControl != nil {
		cfg.MaxInFlight, cfg.MaxMutatingInFlight = -1, -1 // requests are only counted
	}
	discovery := 0
	if cfg.MaxLongRunning > 0 {
		discovery = max(1, cfg.MaxLongRunning/discoveryStreamsShare)
	}
	return &limits{
		reads: fairshare.New(max(0, cfg.MaxInFlight), 0), writes: fairshare.New(max(0, cfg.MaxMutatingInFlight), 0),
		longRunning: fairshare.New(cfg.MaxLongRunning, cfg.MaxLongRunningPerUser), discovery: fairshare.New(discovery, discoveryStreams),
		clients: clientLimits{max: clients}, memory: body.NewBudget(body.ReadMemory), sent: body.NewBudget(body.ReadMemory),
	}
}

// InFlight returns the limits of reads and of writes in flight. They may be set while the process
// runs.
func (c *Chain) InFlight() (reads, writes *fairshare.Limit) { return c.limits.reads, c.limits.writes }

// bounds returns the limits for the metrics.
func (l *limits) bounds(connections *inflight.Connections) metrics.Bounds {
	requests := map[string]metrics.Bound{"readOnly": l.reads, "mutating": l.writes}
	if l.clients.max > 0 {
		requests["client"] = &l.clients
	}
	return metrics.Bounds{
		Requests:    requests,
		LongRunning: map[string]metrics.Bound{"discovery": l.discovery, "other": l.longRunning},
		Connections: map[string]metrics.Bound{"user": connections.Users(), "stranger": connections.Unauthenticated()},
		Rejected:    connections.Rejected,
	}
}

// limitInFlight answers 429 while too many requests are in flight. Config.FlowControl decides,
// if there is one; else reads and writes have separate limits, and no user gets all slots.
// Health checks do not count, and long-running requests only while a watch begins, or a stream
// of events, or another protocol; a request that is proxied to a registered server counts until
// ReleaseInFlight, and has no seats. Without FlowControl watches do not count, and users without
// limits (User.Unlimited) count and are never refused. leaveInFlight ends it.
func (c *Chain) limitInFlight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodHead && r.ContentLength != 0 {
		// The body of a HEAD request has no defined meaning (RFC 9110, 9.3.2), and over HTTP/2 the response may
		// end before it is read. net/http still discards it, as its own request is unchanged.
		body.Put(r, nil)
	}
	rs, action, limit := stateOf(r.Context()), resource.ActionFrom(r.Context()), c.limits.reads
	long := action.LongRunning() && !action.Streams && (c.cfg.FlowControl == nil || action.Verb != "watch")
	if long || isHealth(action.Path) {
		if small := body.Small(r); small || r.ContentLength != 0 && r.ProtoMajor == 2 {
			// A larger body, or one of unknown length, may be a stream that lasts as long as the request. Over
			// HTTP/2 it must end with the request.
			newClientBody(w, r).stream = !small
		}
		return true
	}
	if action.Mutating() {
		limit = c.limits.writes
	}
	rs.slotUser = action.LimitKey()
	sentOn := c.cfg.SentOn != nil && c.cfg.SentOn(action)
	if !c.beginBody(w, r, sentOn) {
		return false
	}
	switch {
	case c.cfg.FlowControl == nil:
		if !takeSlot(limit, action) {
			c.tooMany(w, r, action, retryAfter)
			return false
		}
	case !sentOn && !c.takeSeats(w, r, action):
		return false
	default:
		limit.Exceed(rs.slotUser)
	}
	rs.slot.Store(limit)
	return true
}

// beginBody reads the body of a request. If sentOn, which reports whether the request is sent to a server with limits of
// its own, it reads a small body only, and not of a request that may last; else it bounds how long the handler waits
// for the body. It reports whether the request proceeds.
func (c *Chain) beginBody(w http.ResponseWriter, r *http.Request, sentOn bool) bool {
	rs, action := stateOf(r.Context()), resource.ActionFrom(r.Context())
	switch {
	case c.cfg.SentOn == nil || r.ContentLength == 0:
		return true
	case !sentOn:
		return c.awaitBody(w, r, c.limits.memory, 0)
	case body.Small(r) && !action.LongRunning() && rs.upgrade == nil:
		return c.awaitBody(w, r, c.limits.sent, int(r.ContentLength)) // no slots or seats bound the number of these requests
	}
	newClientBody(w, r)
	return true
}

// takeSeats waits for the seats of a request, and reports whether it got them.
func (c *Chain) takeSeats(w http.ResponseWriter, r *http.Request, action *resource.Action) bool {
	rs, admission := stateOf(r.Context()), c.cfg.FlowControl.Admit(r, action)
	rs.flowSchema, rs.flowLevel = [1]string{admission.Schema}, [1]string{admission.Level}
	if admission.Seats == nil {
		c.tooMany(w, r, action, admission.RetryAfter)
		return false
	}
	if rs.seats = admission.Seats; admission.Limited != "" {
		rs.sending.limit = c.limits.clients.of(admission.Limited)
	}
	return true
}

// leaveInFlight releases what the request holds since limitInFlight. Further calls do nothing.
func (rs *requestState) leaveInFlight() {
	rs.sending.end()
	rs.sent.finish()
	rs.releaseSlot()
	rs.body.Release()
	if rs.seats != nil {
		rs.seats.End()
	}
}

// takeSlot takes a slot for a request and reports whether there was one. A user without
// limits always gets one.
func takeSlot(limit *fairshare.Limit, action *resource.Action) bool {
	if action.User.Unlimited() {
		limit.Exceed(action.LimitKey())
		return true
	}
	return limit.Take(action.LimitKey())
}

// ReleaseInFlight releases the request's slot in flight, and seats if it has any, when it is sent to a
// registered server: from then on the limits of that server apply, and one that hangs does not
// keep requests from others. Its body counts in the memory for bodies until the request is answered.
// It does nothing outside of a chain and after the first call. The handler calls it.
func ReleaseInFlight(ctx context.Context) {
	if rs := stateOf(ctx); rs != nil {
		rs.releaseSlot()
	}
}

func (rs *requestState) releaseSlot() {
	if limit := rs.slot.Swap(nil); limit != nil {
		limit.Release(rs.slotUser)
		if rs.seats != nil {
			rs.seats.Release()
		}
	}
}

// limitLongRunning answers 429 to long-running requests while there are too many, in all
// or of the user. A request that may become long-running, because it asks for another
// protocol or its response may be a stream of events, counts from the beginning. untrack
// releases the slot.
func (c *Chain) limitLongRunning(w http.ResponseWriter, r *http.Request) bool {
	rs, action := stateOf(r.Context()), resource.ActionFrom(r.Context())
	if !action.LongRunning() && rs.upgrade == nil {
		return true
	}
	limit := c.limits.longRunning
	if action.Follow {
		limit = c.limits.discovery
	}
	if !takeSlot(limit, action) {
		c.tooMany(w, r, action, retryAfter)
		return false
	}
	rs.longSlot, rs.slotUser = limit, action.LimitKey()
	return true
}

// limitConnections answers 429, and ends the connection, if the user has too many
// connections.
func (c *Chain) limitConnections(w http.ResponseWriter, r *http.Request) bool {
	conn, rs := inflight.ConnectionFrom(r.Context()), stateOf(r.Context())
	if conn == nil || conn.HasUser() {
		return true
	}
	user := rs.action.User // the authenticated one, not the impersonated
	if user.Name == resource.Anonymous || conn.SetUser(rs.action.LimitKey(), c.cfg.ManyUsers || user.Unlimited()) {
		return true
	}
	rs.closing.Store(true)
	c.tooMany(w, r, resource.ActionFrom(r.Context()), retryAfter)
	return false
}

// retryAfter is the Retry-After of a request beyond a limit, in seconds.
const retryAfter = 1

func (c *Chain) tooMany(w http.ResponseWriter, r *http.Request, action *resource.Action, retryAfter int) {
	c.metrics.Terminated(r, action, http.StatusTooManyRequests)
	response.WriteStatus(w, r, apierrors.NewTooManyRequests("Too many requests, please try again later.", retryAfter))
}
