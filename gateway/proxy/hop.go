package proxy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"portico/apiservice/explain"
	"portico/gateway/upstream"
	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authz"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

// Headers by which a request tells who has sent for it. A client that sends
// headerDebug, with any value, and may get explain.Path, finds the other two on
// the answer, also on one that the gateway makes itself (signed.go); without it
// nobody pays for the question whether it may. They are the gateway's alone: those
// of servers and clients go no further.
const (
	headerDebug   = "X-Portico-Debug"
	headerBackend = "X-Portico-Backend"
	headerTiming  = "Server-Timing"
)

// annotationUpstream is how long a slow request waited for its turn and for servers
// to begin to answer, for audit.
const annotationUpstream = "latency.portico.dev/upstream"

// noEndpoint stands for the endpoint of requests that were sent to none.
const noEndpoint = "none"

// hop is one request on its way to a server and back, for those who want to know
// how it went: metrics, the access log, traces, and the client, if it may. It
// belongs to the request's goroutine, but for the header of its answer, which its
// deadline may write.
type hop struct {
	upstream.Trace
	proxy   *Proxy
	route   *Route
	request *http.Request
	client  http.ResponseWriter // where the answer goes
	answer  pieces              // its body, while it is sent
	relay   *relay              // of a long-running request; nil: it is none, or leaves HTTP
	long    bool
	shown   bool // the client asked, and may be told
	some    bool // of the answer, there is something to be sent
	began   time.Time
	// header is when the answer's header went to the client, in nanoseconds since
	// began; 0: it did not.
	header atomic.Int64
	// open is the endpoint that a long-running request is open to.
	open *endpointTraffic
}

// begin begins the hop of a request; the returned request is to be sent. end
// must follow.
func (p *Proxy) begin(w http.ResponseWriter, r *http.Request, rt *Route) (*hop, *http.Request) {
	h := &hop{
		proxy: p, route: rt, client: w, long: resource.ActionFrom(r.Context()).LongRunning() || upgrades(r.Header), began: time.Now(),
	}
	if r.Header[headerDebug] != nil {
		h.shown = hopFrom(r.Context()) != nil || p.mayDebug(r) // Signed may have asked
		delete(r.Header, headerDebug)
	}
	if p.cfg.Traced && tracing.Sampled(r.Context()) {
		h.Sending = h.span
	}
	h.Informing = keepInformation
	h.request = r
	if !filter.Attach(r.Context(), h) {
		h.request = r.WithContext(context.WithValue(upstream.WithTrace(r.Context(), &h.Trace), hopKey{}, h))
	}
	return h, h.request
}

type hopKey struct{}

// hopFrom returns the hop of a request that is under way; nil if nobody is told
// of it.
func hopFrom(ctx context.Context) *hop {
	h, _ := ctx.Value(hopKey{}).(*hop)
	return h
}

// Value is how the ways to the server find the Trace, and the way back the hop.
func (h *hop) Value(key any) any {
	switch {
	case key == hopKey{}:
		return h
	case upstream.IsTrace(key):
		return &h.Trace
	}
	return nil
}

// mayDebug reports whether the user may be told where requests go.
func (p *Proxy) mayDebug(r *http.Request) bool {
	ask := &resource.Action{User: resource.ActionFrom(r.Context()).User, Verb: "get", Path: explain.Path}
	decision, _, err := p.cfg.Authorizer.Authorize(r.Context(), ask)
	return err == nil && decision == authz.Allow
}

// span begins the span of an attempt; the returned function ends it.
func (h *hop) span(endpoint string, header http.Header) func(upstream.Attempt) {
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
func (h *hop) OnHeader(header http.Header, code int) {
	h.header.Store(max(1, int64(time.Since(h.began))))
	if h.long && code < 300 && h.route.traffic != nil {
		if last, n := h.Last(); n > 0 {
			h.open = h.route.traffic.endpoint(last.Endpoint)
			h.open.long.Inc()
		}
	}
	if h.shown {
		h.show(header)
	}
}

// end takes down what came of the request.
func (h *hop) end() {
	now := time.Now()
	if ctx := h.request.Context(); now.Sub(filter.Started(ctx)) > audit.Slow {
		filter.AddPhase(ctx, annotationUpstream, h.away())
	}
	if h.open != nil {
		h.open.long.Dec()
	}
	if h.route.traffic != nil {
		h.count(now)
	}
	if h.proxy.cfg.Logged {
		filter.SetUpstream(h.request.Context(), h.record(now))
	}
}

// count counts every attempt for the endpoint that it went to.
func (h *hop) count(now time.Time) {
	verb := metrics.VerbLabel(h.request)
	last, n := h.Last()
	if n == 0 {
		h.route.traffic.endpoint(noEndpoint).count(sent{verb: verb})
		return
	}
	if n > 1 {
		attempts := h.Attempts()
		for _, a := range attempts[:len(attempts)-1] {
			h.route.traffic.endpoint(a.Endpoint).count(sent{verb: verb, code: a.Status, header: a.FirstByte, whole: a.FirstByte, retried: true})
		}
	}
	h.route.traffic.endpoint(last.Endpoint).count(sent{
		verb: verb, code: last.Status, long: h.long, header: last.FirstByte, whole: now.Sub(last.Start), own: h.own(),
	})
}

// own is what the gateway took for itself until it began to answer.
func (h *hop) own() time.Duration {
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

// away is how long the request waited for its turn and for servers to begin to
// answer.
func (h *hop) away() time.Duration {
	last, n := h.Last()
	away := h.Queued() + last.FirstByte
	if n > 1 {
		attempts := h.Attempts()
		for _, a := range attempts[:len(attempts)-1] {
			away += a.FirstByte
		}
	}
	return away
}

// record is the hop's part of the access log.
func (h *hop) record(now time.Time) filter.Upstream {
	last, n := h.Last()
	u := filter.Upstream{
		APIService: h.route.Name, Backend: h.route.Backend, Endpoint: last.Endpoint, Attempts: n, FirstByte: h.away(), Took: now.Sub(h.began),
	}
	if last.Status == 0 && last.Err != nil {
		u.Err = last.Err.Error()
	}
	return u
}

// show has the header say who answered and what took how long.
func (h *hop) show(header http.Header) {
	last, n := h.Last()
	var who strings.Builder
	who.WriteString(h.route.Backend)
	if h.route.Name != "" {
		fmt.Fprintf(&who, "; apiservice=%q", h.route.Name)
	}
	if n > 0 {
		fmt.Fprintf(&who, "; endpoint=%q; attempts=%d", last.Endpoint, n)
	}
	header[headerBackend] = []string{who.String()}
	timing := fmt.Sprintf("gateway;dur=%.3f", milliseconds(h.own()))
	if n > 0 {
		timing += fmt.Sprintf(", upstream;dur=%.3f", milliseconds(h.away()-h.Queued()))
	}
	if queued := h.Queued(); queued > 0 {
		timing += fmt.Sprintf(", queue;dur=%.3f", milliseconds(queued))
	}
	header[headerTiming] = []string{timing}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
