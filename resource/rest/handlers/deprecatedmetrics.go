package handlers

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

// deprecatedMetrics tell which deprecated APIs are in use (docs/wire.md 1.6). Safe
// for concurrent use.
type deprecatedMetrics struct {
	gauge *prometheus.GaugeVec

	mu   sync.Mutex
	seen map[deprecatedAPI]bool // at most maxWatchSeries; more are not told of
}

type deprecatedAPI struct{ group, version, resource, subresource string }

func newDeprecatedMetrics() *deprecatedMetrics {
	return &deprecatedMetrics{
		gauge: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_requested_deprecated_apis",
			Help: "Deprecated APIs that have been requested: 1 each. No release is known to remove them.",
		}, []string{"group", "version", "resource", "subresource", "removed_release"}),
		seen: make(map[deprecatedAPI]bool),
	}
}

// requested notes that a deprecated API is in use.
func (m *deprecatedMetrics) requested(act *resource.Action) {
	api := deprecatedAPI{act.Group, act.Version, act.Resource, act.Subresource}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seen[api] || len(m.seen) >= maxWatchSeries {
		return
	}
	m.seen[api] = true
	m.gauge.WithLabelValues(api.group, api.version, api.resource, api.subresource, "").Set(1)
}
