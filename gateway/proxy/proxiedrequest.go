package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/audit"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

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

// begin returns the proxiedRequest of a request, whose request is to be sent. end must
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

// show adds the debug headers.
func (h *proxiedRequest) show(header http.Header) {
	attempts := h.Attempts()
	var server strings.Builder
	server.WriteString(h.route.Backend)
	if h.route.Name != "" {
		fmt.Fprintf(&server, "; apiservice=%q", h.route.Name)
	}
	if n := len(attempts); n > 0 {
		fmt.Fprintf(&server, "; endpoint=%q; attempts=%d", attempts[n-1].Endpoint, n)
	}
	header[headerBackend] = []string{server.String()}
	timing := fmt.Sprintf("gateway;dur=%.3f", milliseconds(h.own()))
	if len(attempts) > 0 {
		timing += fmt.Sprintf(", upstream;dur=%.3f", milliseconds(h.away()-h.Queued()))
	}
	if queued := h.Queued(); queued > 0 {
		timing += fmt.Sprintf(", queue;dur=%.3f", milliseconds(queued))
	}
	header[headerTiming] = []string{timing}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
