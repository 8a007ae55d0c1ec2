package serve

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"portico/resource/fairshare"
)

// maxScrapes bounds how many clients are shown the metrics at a time; more of
// them are answered 503. Each holds all of the text.
const maxScrapes = 8

// Metrics are those of one process, in a registry of its own. Safe for
// concurrent use; a prometheus.Collector of what this package counts.
type Metrics struct {
	registry *prometheus.Registry
	gather   prometheus.Gatherers

	requests        requestDescs
	inFlight        *prometheus.Desc
	limits          *prometheus.Desc
	longNow         *prometheus.Desc
	longLimit       *prometheus.Desc
	connections     *prometheus.Desc
	connectionLimit *prometheus.Desc
	terminations    *prometheus.CounterVec
	aborts          *prometheus.CounterVec
	postTimeout     *prometheus.CounterVec
	handshakeErrors prometheus.Counter
	access          *accessMetrics

	mu      sync.RWMutex
	series  map[labels]*series
	limited []*inFlight
	lasting longRunning
	clients *connections
}

// NewMetrics returns the metrics of a process: requests, the Go runtime and the
// process itself. Those of upstream's parts whose names begin so (SharedMetrics) are
// shown beside them.
func NewMetrics(beginnings ...string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: newRequestDescs(),
		inFlight: prometheus.NewDesc("apiserver_current_inflight_requests",
			"Requests at work that count towards the limits, by kind: readOnly or mutating.", []string{"request_kind"}, nil),
		limits: prometheus.NewDesc("portico_inflight_requests_limit",
			"How many requests of a kind may be at work; of a kind without a limit nothing is said.", []string{"request_kind"}, nil),
		longNow: prometheus.NewDesc("portico_longrunning_requests",
			"Long-running requests that count towards the limits, by kind: discovery for streams of discovery, other for the rest.", []string{"request_kind"}, nil),
		longLimit: prometheus.NewDesc("portico_longrunning_requests_limit",
			"How many long-running requests of a kind there may be, of all users; of a kind without a limit nothing is said.", []string{"request_kind"}, nil),
		connections: prometheus.NewDesc("portico_client_connections",
			"Connections of network clients, by kind: user for those on which a user is authenticated, stranger for the others.", []string{"kind"}, nil),
		connectionLimit: prometheus.NewDesc("portico_client_connections_limit",
			"How many connections of a kind there may be.", []string{"kind"}, nil),
		terminations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total",
			Help: "Requests that the server ended by itself: too many, too long, shutting down, or for a server that could not answer.",
		}, append(withoutDryRun(labelNames()), "code")),
		aborts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_aborts_total",
			Help: "Requests whose connection or stream was ended before their answer was whole: clients that went away, mostly.",
		}, withoutComponent(labelNames())),
		postTimeout: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_post_timeout_total",
			Help: "Handlers that went on after their request was answered with a timeout, by how they ended: ok or panic.",
		}, []string{"source", "status"}),
		handshakeErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_tls_handshake_errors_total",
			Help: "Connections dropped because their TLS handshake failed.",
		}),
		access: newAccessMetrics(),
		series: make(map[labels]*series),
	}
	m.registry.MustRegister(m, m.terminations, m.aborts, m.postTimeout, m.handshakeErrors, buildInfo(),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gather = prometheus.Gatherers{m.registry}
	if len(beginnings) > 0 {
		m.gather = append(m.gather, SharedMetrics(beginnings...))
	}
	return m
}

// buildInfo is upstream's metric of what runs, with what /version says.
func buildInfo() prometheus.Collector {
	v := VersionInfo()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "The version that runs: always 1.",
		ConstLabels: prometheus.Labels{
			"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
			"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
		},
	}, func() float64 { return 1 })
}

// Registry is where other parts of the process register their metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler serves the metrics in the forms of Prometheus: its text, or
// OpenMetrics for who asks; packed for who takes that. What cannot be gathered
// is left out, and the rest is shown.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.gather, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes,
	})
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.requests.total, m.requests.duration, m.requests.sli, m.requests.size, m.requests.long, m.inFlight, m.limits, m.longNow, m.longLimit, m.connections, m.connectionLimit,
	} {
		to <- d
	}
	m.access.describe(to)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.mu.RLock()
	all, limited, long, clients := make([]*series, 0, len(m.series)), m.limited, m.lasting, m.clients
	for _, s := range m.series {
		all = append(all, s)
	}
	m.mu.RUnlock()
	for _, s := range all {
		s.collect(&m.requests, to)
	}
	for _, f := range limited {
		to <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(f.InUse()), f.kind)
		if limit := f.Max(); limit > 0 {
			to <- prometheus.MustNewConstMetric(m.limits, prometheus.GaugeValue, float64(limit), f.kind)
		}
	}
	for kind, l := range map[string]*fairshare.Limit{"other": long.all, "discovery": long.discovery} {
		if l == nil {
			continue
		}
		to <- prometheus.MustNewConstMetric(m.longNow, prometheus.GaugeValue, float64(l.InUse()), kind)
		if limit := l.Max(); limit > 0 {
			to <- prometheus.MustNewConstMetric(m.longLimit, prometheus.GaugeValue, float64(limit), kind)
		}
	}
	if clients != nil {
		clients.collect(m, to)
	}
	m.access.collect(to)
}

// limitedBy shows the requests that are at work. A process has one server that
// limits them; of a second one, the numbers take the first one's place.
func (m *Metrics) limitedBy(clients *connections, lasting longRunning, kinds ...*inFlight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clients, m.lasting, m.limited = clients, lasting, kinds
}
