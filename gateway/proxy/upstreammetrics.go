package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice/backend"
	"portico/gateway/upstream"
)

// upstreamMetrics reads the state of every endpoint when metrics are collected. A
// prometheus.Collector.
type upstreamMetrics struct {
	// servers returns the servers behind the gateway by name.
	servers func() map[string]*upstream.Upstream

	state, active, errors, retries, ejections *prometheus.Desc // by endpoint
	queue, overflowed, outOfBudget            *prometheus.Desc // by server
}

func NewUpstreamMetrics(servers func() map[string]*upstream.Upstream) *upstreamMetrics {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("portico_upstream_"+name, help, append([]string{"backend"}, labels...), nil)
	}
	return &upstreamMetrics{
		servers:     servers,
		state:       of("endpoint_state", "State of an endpoint: 1 for the state that it is in, 0 for the others.", "endpoint", "state"),
		active:      of("requests_in_flight", "Requests in progress to an endpoint, including long-running ones.", "endpoint"),
		errors:      of("errors_total", "Requests to an endpoint that failed: no answer, or a 5xx.", "endpoint"),
		retries:     of("retries_total", "Requests that were sent to an endpoint again after a failed attempt.", "endpoint"),
		ejections:   of("ejections_total", "Ejections of an endpoint because of failed requests.", "endpoint"),
		queue:       of("queue_length", "Requests that wait for a slot of the concurrency limit."),
		overflowed:  of("queue_rejections_total", "Requests refused because the queue was full."),
		outOfBudget: of("retries_denied_total", "Requests that were not repeated because the retry budget was empty."),
	}
}

// Describe implements prometheus.Collector.
func (m *upstreamMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.state, m.active, m.errors, m.retries, m.ejections, m.queue, m.overflowed, m.outOfBudget} {
		to <- d
	}
}

// endpointStates are all states that an endpoint can be in.
var endpointStates = [...]backend.EndpointState{
	backend.EndpointUnknown, backend.EndpointHealthy, backend.EndpointUnhealthy, backend.EndpointEjected, backend.EndpointDraining,
}

// Collect implements prometheus.Collector.
func (m *upstreamMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	for name, up := range m.servers() {
		s := up.Status()
		gauge(m.queue, s.Waiting, name)
		counter(m.overflowed, s.Overflowed, name)
		counter(m.outOfBudget, s.OutOfBudget, name)
		for _, e := range s.Endpoints {
			for _, state := range endpointStates {
				is := int64(0)
				if e.State == state {
					is = 1
				}
				gauge(m.state, is, name, e.URL, string(state))
			}
			gauge(m.active, e.Active, name, e.URL)
			counter(m.errors, e.Errors, name, e.URL)
			counter(m.retries, e.Retries, name, e.URL)
			counter(m.ejections, e.Ejections, name, e.URL)
		}
	}
}
