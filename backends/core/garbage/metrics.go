package garbage

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the metrics of the collectors of one process, of which one at a time runs. It is
// safe for concurrent use.
type Metrics struct {
	syncErrors prometheus.Counter
	requests   *prometheus.CounterVec
	objects    prometheus.GaugeFunc
	graph      atomic.Pointer[Graph]
}

// NewMetrics returns metrics to register.
func NewMetrics() *Metrics {
	m := &Metrics{
		syncErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "garbagecollector_controller_resources_sync_error_total",
			Help: "Number of garbage collector resources sync errors",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_garbage_collector_requests_total", Help: "Requests of the garbage collector by verb, failed ones included.",
		}, []string{"verb"}),
	}
	m.objects = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portico_garbage_collector_objects", Help: "Objects that the garbage collector knows; 0 while another process collects.",
	}, func() float64 {
		if g := m.graph.Load(); g != nil {
			return float64(g.Len())
		}
		return 0
	})
	return m
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.syncErrors, m.requests, m.objects}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(out chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(out chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(out)
	}
}
