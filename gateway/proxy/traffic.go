package proxy

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/gateway/upstream"
)

// maxTraffic bounds the pairs of an APIService and an endpoint with series of their own, of
// about 4 KiB and up to 100 lines each once they are used. Others are counted together, as
// otherTraffic.
const maxTraffic = 4096

// otherTraffic is the label of requests without series of their own.
const otherTraffic = "other"

// Traffic counts requests by APIService, server and endpoint. Series are removed with their
// APIService or endpoint. Methods but Watch are safe for concurrent use.
type Traffic struct {
	requests *prometheus.CounterVec
	// header and whole are the times from sending a request to the header and the end of
	// its answer; own is the time that the gateway itself took.
	header, whole, own *prometheus.HistogramVec
	long               *prometheus.GaugeVec
	// live are the pairs with series of their own, and gone those that Watch removed last.
	live atomic.Pointer[map[trafficPair]bool]
	gone []trafficPair
}

// trafficPair has the labels of a route and an endpoint.
type trafficPair struct{ apiService, backend, endpoint string }

// Buckets of times, in seconds. What the gateway adds should be less than a millisecond,
// which the buckets of kube-apiserver do not resolve.
var (
	upstreamBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	ownBuckets      = []float64{0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1}
)

// NewTraffic returns a Traffic without series.
func NewTraffic() *Traffic {
	labels := []string{"apiservice", "backend", "endpoint"}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	t := &Traffic{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_upstream_requests_total",
			Help: "Requests sent on, by the verb and the class of the answer's status code; none: there was no answer.",
		}, append(labels, "verb", "code")),
		header: histogram("portico_upstream_response_header_seconds",
			"Time from when a request was sent on to the header of its answer, in seconds. Long-running requests too.", upstreamBuckets),
		whole: histogram("portico_upstream_request_duration_seconds",
			"Time from when a request was sent on to the end of its answer, in seconds. Without long-running requests.", upstreamBuckets),
		own: histogram("portico_gateway_request_overhead_seconds",
			"Time that the gateway took for itself until it began to answer a request that was sent on, in seconds.", ownBuckets),
		long: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "portico_upstream_longrunning_requests", Help: "Long-running requests in progress to an endpoint.",
		}, labels),
	}
	t.live.Store(&map[trafficPair]bool{})
	return t
}

// Metrics returns the collectors of all series.
func (t *Traffic) Metrics() []prometheus.Collector {
	return []prometheus.Collector{t.requests, t.header, t.whole, t.own, t.long}
}

// Watch has the requests of the routes counted, and removes the series of all other routes
// and endpoints. upstreams are the servers by name. It must be called before the routes are
// published, and by one goroutine.
func (t *Traffic) Watch(routes map[schema.GroupVersion]*Route, upstreams map[string]*upstream.Upstream) {
	names := make(map[*upstream.Upstream]string, len(upstreams))
	for name, up := range upstreams {
		names[up] = name
	}
	var pairs []trafficPair
	for _, rt := range routes {
		if rt.Upstream == nil {
			continue
		}
		rt.Backend, rt.traffic = names[rt.Upstream.Upstream], t
		pairs = append(pairs, trafficPair{rt.Name, rt.Backend, noEndpoint})
		for _, e := range rt.Upstream.Endpoints() {
			pairs = append(pairs, trafficPair{rt.Name, rt.Backend, e.URL})
		}
	}
	t.keep(pairs)
}

// keep gives series to at most maxTraffic of the pairs, first to those that have them, and
// removes those of all others. A request that counts during keep can bring series of a pair
// back: the next keep removes them.
func (t *Traffic) keep(pairs []trafficPair) {
	old, live := *t.live.Load(), make(map[trafficPair]bool, min(len(pairs), maxTraffic))
	for _, had := range []bool{true, false} {
		for _, p := range pairs {
			if old[p] == had && len(live) < maxTraffic {
				live[p] = true
			}
		}
	}
	t.live.Store(&live)
	again := t.gone
	t.gone = nil
	for p := range old {
		if !live[p] {
			t.gone = append(t.gone, p)
			t.remove(p)
		}
	}
	for _, p := range again {
		if !live[p] {
			t.remove(p)
		}
	}
}

// remove removes the series of a pair.
func (t *Traffic) remove(p trafficPair) {
	labels := prometheus.Labels{"apiservice": p.apiService, "backend": p.backend, "endpoint": p.endpoint}
	t.header.Delete(labels)
	t.whole.Delete(labels)
	t.own.Delete(labels)
	t.long.Delete(labels)
	t.requests.DeletePartialMatch(labels)
}

// pair returns the labels under which requests along a route to an endpoint are counted.
func (t *Traffic) pair(r *Route, endpoint string) trafficPair {
	p := trafficPair{r.Name, r.Backend, endpoint}
	if !(*t.live.Load())[p] {
		return trafficPair{otherTraffic, otherTraffic, otherTraffic}
	}
	return p
}

// open counts a long-running request as in progress until the gauge is decremented.
func (t *Traffic) open(r *Route, endpoint string) prometheus.Gauge {
	p := t.pair(r, endpoint)
	g := t.long.WithLabelValues(p.apiService, p.backend, p.endpoint)
	g.Inc()
	return g
}

// sent is a request that was sent and has ended.
type sent struct {
	verb string // of metrics.VerbLabel
	code int    // of the answer; 0: there was none
	long bool   // it was long-running
	// retried: the request was sent again after it.
	retried bool
	// header and whole are counted from its sending; own is the time that the gateway
	// itself took before it sent the header to the client.
	header, whole, own time.Duration
}

// count counts a request along a route to an endpoint.
func (t *Traffic) count(r *Route, endpoint string, s sent) {
	p := t.pair(r, endpoint)
	t.requests.WithLabelValues(p.apiService, p.backend, p.endpoint, s.verb, codeClass(s.code)).Inc()
	if s.code != 0 {
		t.header.WithLabelValues(p.apiService, p.backend, p.endpoint).Observe(s.header.Seconds())
		if !s.retried {
			t.own.WithLabelValues(p.apiService, p.backend, p.endpoint).Observe(s.own.Seconds())
		}
	}
	if !s.long {
		t.whole.WithLabelValues(p.apiService, p.backend, p.endpoint).Observe(s.whole.Seconds())
	}
}

// codeClass is the class of a status code; "none" if there was no answer.
func codeClass(code int) string {
	if code == 0 {
		return "none"
	}
	return strconv.Itoa(min(code/100, 5)) + "xx"
}
