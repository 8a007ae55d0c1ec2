package proxy

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"portico/gateway/upstream"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxTraffic bounds the pairs of an APIService and an endpoint with counters of their
// own, of about 4 KiB and up to 100 lines each. Others are counted together, as
// otherTraffic.
const maxTraffic = 2048

// otherTraffic is the label of requests without counters of their own.
const otherTraffic = "other"

// Traffic counts requests by APIService, server and endpoint. A request finds its
// counters with two atomic loads and one look-up in a map. Counters are removed with
// their APIService or endpoint. Safe for concurrent use; a prometheus.Collector.
type Traffic struct {
	mu     sync.Mutex
	routes map[routeName]*routeTraffic
	pairs  int // of all routes
	other  *endpointTraffic
}

// routeName identifies a route.
type routeName struct{ apiService, backend string }

// routeTraffic counts the requests for one group/version.
type routeTraffic struct {
	routeName
	all *Traffic
	// gone: the route was removed, and gets no more counters.
	gone      bool // guarded by all.mu
	endpoints atomic.Pointer[map[string]*endpointTraffic]
}

// endpointTraffic counts the requests for one group/version to one endpoint.
type endpointTraffic struct {
	requests *prometheus.CounterVec // by verb and code
	used     atomic.Bool
	// header and whole are the times from sending a request to the header and the end of
	// its answer; own is the time that the gateway itself took.
	header, whole, own prometheus.Histogram
	long               prometheus.Gauge
}

// Buckets of times, in seconds. What the gateway adds should be less than a millisecond,
// which the buckets of kube-apiserver do not resolve.
var (
	upstreamBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
	ownBuckets      = []float64{0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1}
)

func NewTraffic() *Traffic {
	t := &Traffic{routes: map[routeName]*routeTraffic{}}
	t.other = newEndpointTraffic(routeName{otherTraffic, otherTraffic}, otherTraffic)
	return t
}

// Watch gives the routes their counters, and removes those of all others. upstreams are
// the servers by name. It must be called before the routes are published.
func (t *Traffic) Watch(routes map[schema.GroupVersion]*Route, upstreams map[string]*upstream.Upstream) {
	names := make(map[*upstream.Upstream]string, len(upstreams))
	for name, up := range upstreams {
		names[up] = name
	}
	live := make(map[routeName]bool, len(routes))
	for _, rt := range routes {
		if rt.Upstream == nil {
			continue
		}
		rt.Backend = names[rt.Upstream.Upstream]
		name := routeName{rt.Name, rt.Backend}
		rt.traffic, live[name] = t.route(name), true
	}
	t.keep(func(name routeName) bool { return live[name] }, func(name routeName) []string {
		up := upstreams[name.backend]
		if up == nil {
			return nil
		}
		var urls []string
		for _, e := range up.Endpoints() {
			urls = append(urls, e.URL)
		}
		return urls
	})
}

// route returns the counters of a route, the same for the same names.
func (t *Traffic) route(name routeName) *routeTraffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.routes[name]; r != nil {
		return r
	}
	r := &routeTraffic{routeName: name, all: t}
	r.endpoints.Store(&map[string]*endpointTraffic{})
	t.routes[name] = r
	return r
}

// keep removes the counters of all routes but the live ones, and of those the counters
// of all endpoints but the present ones.
func (t *Traffic) keep(live func(routeName) bool, endpoints func(routeName) []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, r := range t.routes {
		var has []string
		switch {
		case !live(name):
			r.gone = true
			delete(t.routes, name)
		case len(*r.endpoints.Load()) > 0:
			has = append(endpoints(name), noEndpoint)
		}
		r.retain(has)
	}
}

// retain removes the counters of all other endpoints; all.mu is held.
func (r *routeTraffic) retain(endpoints []string) {
	known := *r.endpoints.Load()
	kept := make(map[string]*endpointTraffic, len(endpoints))
	for _, url := range endpoints {
		if e := known[url]; e != nil {
			kept[url] = e
		}
	}
	if len(kept) == len(known) {
		return
	}
	r.all.pairs -= len(known) - len(kept)
	r.endpoints.Store(&kept)
}

// endpoint returns the counters of an endpoint.
func (r *routeTraffic) endpoint(url string) *endpointTraffic {
	if e := (*r.endpoints.Load())[url]; e != nil {
		return e
	}
	r.all.mu.Lock()
	defer r.all.mu.Unlock()
	known := *r.endpoints.Load()
	if e := known[url]; e != nil {
		return e
	}
	if r.gone || r.all.pairs >= maxTraffic {
		return r.all.other
	}
	more := maps.Clone(known)
	e := newEndpointTraffic(r.routeName, url)
	more[url] = e
	r.all.pairs++
	r.endpoints.Store(&more)
	return e
}

func newEndpointTraffic(r routeName, url string) *endpointTraffic {
	labels := prometheus.Labels{"apiservice": r.apiService, "backend": r.backend, "endpoint": url}
	e := &endpointTraffic{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "portico_upstream_requests_total", ConstLabels: labels,
		Help: "Requests sent on, by the verb and the class of the answer's status code; none: there was no answer.",
	}, []string{"verb", "code"})}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, ConstLabels: labels})
	}
	e.header = histogram("portico_upstream_response_header_seconds",
		"Time from when a request was sent on to the header of its answer, in seconds. Long-running requests too.", upstreamBuckets)
	e.whole = histogram("portico_upstream_request_duration_seconds",
		"Time from when a request was sent on to the end of its answer, in seconds. Without long-running requests.", upstreamBuckets)
	e.own = histogram("portico_gateway_request_overhead_seconds",
		"Time that the gateway took for itself until it began to answer a request that was sent on, in seconds.", ownBuckets)
	e.long = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "portico_upstream_longrunning_requests", Help: "Long-running requests in progress to an endpoint.", ConstLabels: labels,
	})
	return e
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

// count counts a request.
func (e *endpointTraffic) count(s sent) {
	e.used.Store(true)
	e.requests.WithLabelValues(s.verb, codeClass(s.code)).Inc()
	if s.code != 0 {
		e.header.Observe(s.header.Seconds())
		if !s.retried {
			e.own.Observe(s.own.Seconds())
		}
	}
	if !s.long {
		e.whole.Observe(s.whole.Seconds())
	}
}

// codeClass is the class of a status code; "none" if there was no answer.
func codeClass(code int) string {
	if code == 0 {
		return "none"
	}
	return strconv.Itoa(min(code/100, 5)) + "xx"
}

// Describe sends nothing: metrics are added and removed.
func (t *Traffic) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (t *Traffic) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	all := make([]*endpointTraffic, 0, t.pairs+1)
	for _, r := range t.routes {
		for _, e := range *r.endpoints.Load() {
			all = append(all, e)
		}
	}
	t.mu.Unlock()
	if t.other.used.Load() {
		all = append(all, t.other)
	}
	for _, e := range all {
		e.requests.Collect(to)
		to <- e.header
		to <- e.whole
		to <- e.own
		to <- e.long
	}
}
