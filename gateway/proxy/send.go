package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpguts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice"
	"portico/discovery"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authz"
	"portico/resource/response"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

// Route is where requests for one group/version go. Immutable.
type Route struct {
	// Name is that of the APIService.
	Name string
	// Local: the gateway answers itself. Otherwise Upstream does; it is nil where the
	// APIService names a Service that cannot be reached, for the reason in Condition.
	Local     bool
	Upstream  *Upstream
	Condition apiservice.Condition
	// Slow: Upstream gets requests although the Condition is False, because its checks only were not
	// answered in time.
	Slow bool
	// Absent: no server serves the group/version, and no server that might is away.
	Absent bool
	// REST, if not nil, is how requests are sent to a server that is no Kubernetes API
	// server.
	REST *REST
	// Static: Upstream is a server that the gateway starts with.
	Static bool

	// Backend is the name of the server in metrics and headers, and traffic counts the
	// requests to it; "" and nil without metrics.
	Backend string
	traffic *Traffic
}

// RetryAfter is the Retry-After of a gateway that is busy, starting or shutting
// down, in seconds. The API of a server that is away has none: client-go would wait and
// repeat the request ten times, and kubectl would hang instead of failing.
const RetryAfter = 1

// Unavailable returns the 503 for a route along which no request can be sent; nil if
// one can.
func (r *Route) Unavailable() *apierrors.StatusError {
	if r.Local || r.Upstream != nil && (r.Slow || r.Condition.Available()) {
		return nil
	}
	err := resource.Unavailable(fmt.Sprintf("service unavailable: APIService %q is not available: %s: %s",
		r.Name, r.Condition.Reason, r.Condition.Message), 0)
	if r.Absent {
		err.ErrStatus.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{discovery.NotServed()}}
	}
	return err
}

// Table is a snapshot of all routes.
type Table struct {
	Routes map[schema.GroupVersion]*Route
}

// Lookup returns the route of a group/version; nil if there is none.
func (t *Table) Lookup(group, version string) *Route {
	if t == nil {
		return nil
	}
	return t.Routes[schema.GroupVersion{Group: group, Version: version}]
}

// Config of a Proxy. The zero Config is good for Send alone.
type Config struct {
	// Table returns the routes as they are now. Required by Streams and DebugHeaders.
	Table func() *Table
	// Authorizer decides whether a user gets debug headers. Required by DebugHeaders.
	Authorizer authz.Authorizer
	// Traced: the attempts of a request get spans if its trace is sampled.
	Traced bool
	// Logged: requests add a record to the access log.
	Logged bool
}

// Proxy sends requests along their routes. Safe for concurrent use.
type Proxy struct{ cfg Config }

// New returns a Proxy.
func New(cfg Config) *Proxy { return &Proxy{cfg} }

// lookup returns the route of a group/version as it is now; nil if there is none.
func (p *Proxy) lookup(group, version string) *Route { return p.cfg.Table().Lookup(group, version) }

// Send sends a request along its route. The order is that of its checks.
func (p *Proxy) Send(w http.ResponseWriter, r *http.Request, rt *Route) {
	ctx := r.Context()
	filter.CountAs(ctx, "aggregator")
	if err := rt.Unavailable(); err != nil {
		response.WriteStatus(w, r, err)
		return
	}
	act := resource.ActionFrom(ctx)
	if err := rt.refuse(r, act); err != nil {
		response.WriteStatus(w, r, err)
		return
	}
	h := p.begin(w, r, rt, act)
	defer h.end()
	r = h.request
	if rt.REST != nil {
		r = rt.REST.request(r)
		w = &locationWriter{w, restRequestOf(r)}
		h.client = w
	}
	if !rt.Static {
		filter.ReleaseInFlight(ctx) // the limit of the Backend takes over
	}
	// The server says how its answer may be cached.
	w.Header().Del("Cache-Control")
	switch {
	case h.upgrade:
		rt.Upstream.upgrade.ServeHTTP(w, r)
	case act.LongRunning():
		rt.Upstream.long.ServeHTTP(unflushed{w}, r)
	default:
		rt.Upstream.short.ServeHTTP(w, r)
	}
}

// Refuse returns the error for a request that is not sent, because the server could
// read it as another one than was authorized, or not as it is meant; nil if it is sent.
func (r *Route) Refuse(req *http.Request) error {
	return r.refuse(req, resource.ActionFrom(req.Context()))
}

func (r *Route) refuse(req *http.Request, act *resource.Action) error {
	if err := ambiguous(req, act); err != nil || r.REST == nil {
		return err
	}
	return r.REST.refuse(req, act)
}

// ambiguous returns the error for a request that a server could read as another one
// than was authorized; nil if there is none.
func ambiguous(r *http.Request, act *resource.Action) error {
	if hasAmbiguousByte(r.URL.Path) || hasEscapedSlash(r.URL.RawPath) {
		// The gateway authorizes an escaped slash as part of a name; servers that decode
		// the path before they split it read x%2Fstatus as a subresource of x.
		return apierrors.NewBadRequest("the path must not have an escaped slash, a backslash or a control character: servers differ in how they read it")
	}
	if strings.Contains(r.URL.Path, "/.") {
		for segment := range strings.SplitSeq(r.URL.Path, "/") {
			if segment == "." || segment == ".." {
				// Servers differ in whether it removes the segment before it.
				return apierrors.NewBadRequest(fmt.Sprintf("the path must not have the segment %q", segment))
			}
		}
	}
	if act != nil && act.User != nil {
		if value, ok := invalidInHeader(act.User); ok {
			return apierrors.NewBadRequest(fmt.Sprintf("the user cannot be named to the server: %q cannot be the value of a header", value))
		}
	}
	return nil
}

// hasAmbiguousByte reports whether a path has, escaped or not, a backslash, which is a slash
// to some servers, or a control character: a NUL ends the path, and a line break a line.
func hasAmbiguousByte(path string) bool {
	for i := range len(path) {
		if c := path[i]; c < ' ' || c == 0x7f || c == '\\' {
			return true
		}
	}
	return false
}

// hasEscapedSlash reports whether an escaped path has an escaped slash. The path is ""
// if it needs the default escapes only (url.URL.RawPath).
func hasEscapedSlash(escaped string) bool {
	return escaped != "" && strings.Contains(strings.ToLower(escaped), "%2f")
}

// invalidInHeader returns the part of a user, or of its impersonator, that cannot be the value of
// a header as it is: without its line breaks, or the space around it, it would be another user.
func invalidInHeader(u *resource.User) (value string, ok bool) {
	changes := func(v string) bool { return !httpguts.ValidHeaderFieldValue(v) || strings.Trim(v, " \t") != v }
	if changes(u.Name) {
		return u.Name, true
	}
	if changes(u.UID) {
		return u.UID, true
	}
	for _, group := range u.Groups {
		if changes(group) {
			return group, true
		}
	}
	for _, values := range u.Extra {
		for _, v := range values {
			if changes(v) {
				return v, true
			}
		}
	}
	if u.Constraint != nil {
		return invalidInHeader(u.Constraint.Impersonator)
	}
	return "", false
}

// annotationUpstream is the audit annotation of slow requests for the time that they
// waited for a slot and for servers to begin their answers.
const annotationUpstream = "latency.portico.dev/upstream"

// noEndpoint is the label of requests that were sent to no endpoint.
const noEndpoint = "none"

// proxiedRequest is a request on its way to a server and back. It collects what
// metrics, the access log, traces and the debug headers show. It belongs to the
// request's goroutine, except for the header of its answer, which the request's
// deadline may write.
type proxiedRequest struct {
	upstream.Trace
	proxy   *Proxy
	route   *Route
	request *http.Request
	act     *resource.Action
	client  http.ResponseWriter // where the answer goes
	answer  pieces              // its body, while it is sent
	upgrade bool                // the client asks for another protocol
	shown   bool                // the answer gets the debug headers
	pending bool                // a part of the answer has been copied and not flushed
	began   time.Time
	// header is when the answer's header went to the client, in nanoseconds since
	// began; 0: it did not.
	header atomic.Int64
	// open counts the long-running requests to the endpoint; nil: this one is none.
	open prometheus.Gauge
}

// begin returns the proxiedRequest of a request. Its field request is to be sent. end must
// follow.
func (p *Proxy) begin(w http.ResponseWriter, r *http.Request, rt *Route, act *resource.Action) *proxiedRequest {
	h := &proxiedRequest{proxy: p, route: rt, client: w, act: act, upgrade: upgrades(r.Header), began: time.Now()}
	if r.Header[headerDebug] != nil {
		// DebugHeaders may have checked the permission.
		h.shown = proxiedRequestFrom(r.Context()) != nil || p.mayDebug(r, act)
		delete(r.Header, headerDebug)
	}
	if p.cfg.Traced && tracing.Sampled(r.Context()) {
		h.BeforeAttempt = h.span
	}
	h.request = r
	if !filter.Attach(r.Context(), h) {
		h.request = r.WithContext(context.WithValue(context.WithValue(r.Context(), upstream.TraceKey{}, &h.Trace), proxiedRequestKey{}, h))
	}
	return h
}

type proxiedRequestKey struct{}

// proxiedRequestFrom returns the proxiedRequest of a context; nil if there is none.
func proxiedRequestFrom(ctx context.Context) *proxiedRequest {
	h, _ := ctx.Value(proxiedRequestKey{}).(*proxiedRequest)
	return h
}

// Value makes the Trace and the proxiedRequest values of the request's context.
func (h *proxiedRequest) Value(key any) any {
	switch {
	case key == proxiedRequestKey{}:
		return h
	case key == upstream.TraceKey{}:
		return &h.Trace
	}
	return nil
}

// span begins the span of an attempt; the returned function ends it.
func (h *proxiedRequest) span(endpoint string, header http.Header) func(upstream.Attempt) {
	span := tracing.Client(h.request.Context(), h.request.Method, header)
	return func(a upstream.Attempt) {
		span.Set("server.address", endpoint)
		span.Set("portico.backend", h.route.Backend)
		span.Set("portico.apiservice", h.route.Name)
		failed := ""
		if a.Status != 0 {
			span.SetInt("http.response.status_code", a.Status)
		} else if a.Err != nil {
			failed = a.Err.Error()
		}
		span.End(failed)
	}
}

// OnHeader is called when the header of the answer is about to be sent to the
// client.
func (h *proxiedRequest) OnHeader(header http.Header, code int) {
	h.header.Store(max(1, int64(time.Since(h.began))))
	if (h.upgrade || h.act.LongRunning()) && code < 300 && h.route.traffic != nil {
		if attempts := h.Attempts(); len(attempts) > 0 {
			h.open = h.route.traffic.open(h.route, attempts[len(attempts)-1].Endpoint)
		}
	}
	if h.shown {
		h.show(header)
	}
}

// end records the outcome of the request.
func (h *proxiedRequest) end() {
	now := time.Now()
	if ctx := h.request.Context(); now.Sub(filter.Started(ctx)) > audit.Slow {
		filter.AddPhase(ctx, annotationUpstream, h.away())
	}
	if h.open != nil {
		h.open.Dec()
	}
	if h.route.traffic != nil {
		h.count(now)
	}
	if h.proxy.cfg.Logged {
		filter.SetUpstream(h.request.Context(), h.record(now))
	}
}

// count counts every attempt for the endpoint that it went to.
func (h *proxiedRequest) count(now time.Time) {
	verb := metrics.VerbLabel(h.request)
	attempts := h.Attempts()
	if len(attempts) == 0 {
		h.route.traffic.count(h.route, noEndpoint, sent{verb: verb})
		return
	}
	for _, a := range attempts[:len(attempts)-1] {
		h.route.traffic.count(h.route, a.Endpoint, sent{verb: verb, code: a.Status, header: a.FirstByte, whole: a.FirstByte, retried: true})
	}
	last := attempts[len(attempts)-1]
	h.route.traffic.count(h.route, last.Endpoint, sent{
		verb: verb, code: last.Status, long: h.upgrade || h.act.LongRunning(), header: last.FirstByte, whole: now.Sub(last.Start), own: h.own(),
	})
}

// own is the time that the gateway itself took until it began to answer.
func (h *proxiedRequest) own() time.Duration {
	header := time.Duration(h.header.Load())
	if header == 0 {
		return 0
	}
	since := filter.Started(h.request.Context())
	if since.IsZero() {
		since = h.began
	}
	return max(0, h.began.Sub(since)+header-h.away())
}

// away is how long the request waited for a slot and for servers to begin their
// answers.
func (h *proxiedRequest) away() time.Duration {
	away := h.Queued()
	for _, a := range h.Attempts() {
		away += a.FirstByte
	}
	return away
}

// record is the request's part of the access log.
func (h *proxiedRequest) record(now time.Time) filter.Upstream {
	attempts := h.Attempts()
	u := filter.Upstream{
		APIService: h.route.Name, Backend: h.route.Backend, Attempts: len(attempts), FirstByte: h.away(), Took: now.Sub(h.began),
	}
	if len(attempts) > 0 {
		last := attempts[len(attempts)-1]
		if u.Endpoint = last.Endpoint; last.Status == 0 && last.Err != nil {
			u.Err = last.Err.Error()
		}
	}
	return u
}
