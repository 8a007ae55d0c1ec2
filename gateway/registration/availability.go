package registration

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice"
)

// availabilityMetrics are upstream's metrics of APIServices (docs/wire.md 1.6).
type availabilityMetrics struct {
	unavailable *prometheus.GaugeVec
	total       *prometheus.CounterVec

	mu   sync.Mutex
	last map[string]apiservice.Condition
}

func newAvailabilityMetrics(registry prometheus.Registerer) *availabilityMetrics {
	m := &availabilityMetrics{
		unavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aggregator_unavailable_apiservice",
			Help: "Whether an APIService is unavailable (1) or not (0).",
		}, []string{"name"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_unavailable_apiservice_total",
			Help: "How often an APIService became unavailable, by the reason of its condition.",
		}, []string{"name", "reason"}),
		last: map[string]apiservice.Condition{},
	}
	registry.MustRegister(m.unavailable, m.total)
	return m
}

// set takes the conditions of all APIServices; those no longer there lose their
// gauge.
func (m *availabilityMetrics) set(conditions map[string]apiservice.Condition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.last {
		if _, ok := conditions[name]; !ok {
			m.unavailable.DeleteLabelValues(name)
			delete(m.last, name)
		}
	}
	for name, c := range conditions {
		before, seen := m.last[name]
		if seen && before == c {
			continue
		}
		m.last[name] = c
		if c.Available() {
			m.unavailable.WithLabelValues(name).Set(0)
			continue
		}
		m.unavailable.WithLabelValues(name).Set(1)
		if !seen || before.Available() || before.Reason != c.Reason {
			reason := c.Reason
			if reason == "" {
				reason = "UnknownReason"
			}
			m.total.WithLabelValues(name, reason).Inc()
		}
	}
}
