package serve

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are those of one process, in a registry of its own. Safe for
// concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	gather   prometheus.Gatherers

	requests        *prometheus.CounterVec
	durations       *prometheus.HistogramVec
	sizes           *prometheus.HistogramVec
	long            *prometheus.GaugeVec
	inFlight        *prometheus.GaugeVec
	terminations    *prometheus.CounterVec
	aborts          *prometheus.CounterVec
	handshakeErrors prometheus.Counter

	mu     sync.RWMutex
	series map[labels]*series
}

// NewMetrics returns the metrics of a process: requests, the Go runtime and the
// process itself. What the others gather (the registry of an engine that brings
// its own) is shown beside it.
func NewMetrics(others ...prometheus.Gatherer) *Metrics {
	names := labelNames()
	withoutDryRun := append([]string{names[0]}, names[2:]...)
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests answered, by verb, dry run, resource, scope, component and status code.",
		}, append(labelNames(), "code")),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Time from the request's header to the end of its response, in seconds.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, names),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_response_sizes",
			Help:    "Size of the bodies that answer GET and LIST, in bytes.",
			Buckets: prometheus.ExponentialBuckets(1000, 10, 7),
		}, withoutDryRun),
		long: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Long-running requests under way.",
		}, withoutDryRun),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_current_inflight_requests",
			Help: "Requests at work that count towards the limits, by kind: readOnly or mutating.",
		}, []string{"request_kind"}),
		terminations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total",
			Help: "Requests that the server ended by itself: too many, too long, or shutting down.",
		}, append(withoutDryRun[:len(withoutDryRun):len(withoutDryRun)], "code")),
		aborts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_aborts_total",
			Help: "Requests whose connection or stream was ended before their answer was whole: clients that went away, mostly.",
		}, withoutDryRun),
		handshakeErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_tls_handshake_errors_total",
			Help: "Connections dropped because their TLS handshake failed.",
		}),
		series: make(map[labels]*series),
	}
	m.registry.MustRegister(m.requests, m.durations, m.sizes, m.long, m.inFlight, m.terminations, m.aborts, m.handshakeErrors,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.gather = append(prometheus.Gatherers{m.registry}, others...)
	return m
}

// Registry is where other parts of the process register their metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Handler serves the metrics in the forms of Prometheus.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.gather, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}
