package routing

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice/availability"
)

// discoveryCheck is the endpoint label of checks that read the discovery from any of several
// endpoints.
const discoveryCheck = "discovery"

// checkName has the labels of a check.
type checkName struct{ backend, endpoint string }

// checkMetrics count the checks of servers. count is of one goroutine.
type checkMetrics struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
	names    map[checkName]bool
}

func newCheckMetrics() *checkMetrics {
	return &checkMetrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "portico_upstream_checks_total", Help: "Active checks of an endpoint, by how they ended: passed or failed.",
		}, []string{"backend", "endpoint", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "portico_upstream_check_duration_seconds", Help: "How long active checks of an endpoint took, in seconds.",
			Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 5},
		}, []string{"backend", "endpoint"}),
	}
}

// count makes the probes of the targets count themselves, under the name of the same index,
// and deletes the series of all other names.
func (m *checkMetrics) count(targets []availability.Target, names []checkName) {
	current := make(map[checkName]bool, len(targets))
	for i, n := range names {
		current[n] = true
		passed, failed := m.total.WithLabelValues(n.backend, n.endpoint, "passed"), m.total.WithLabelValues(n.backend, n.endpoint, "failed")
		duration, probe := m.duration.WithLabelValues(n.backend, n.endpoint), targets[i].Probe
		targets[i].Probe = func(ctx context.Context) error {
			started := time.Now()
			err := probe(ctx)
			duration.Observe(time.Since(started).Seconds())
			if err != nil {
				failed.Inc()
			} else {
				passed.Inc()
			}
			return err
		}
	}
	for n := range m.names {
		if !current[n] {
			labels := prometheus.Labels{"backend": n.backend, "endpoint": n.endpoint}
			m.total.DeletePartialMatch(labels)
			m.duration.Delete(labels)
		}
	}
	m.names = current
}

// checkNameOf returns the labels of a check of the server: its endpoint, discoveryCheck, or
// the URL of a group/version that the server does not list.
func (srv *Server) checkNameOf(t *availability.Target) checkName {
	endpoint := strings.TrimPrefix(strings.TrimPrefix(t.ID, srv.target), " ")
	if endpoint == "" {
		endpoint = discoveryCheck
		if all := srv.Up.Endpoints(); len(all) == 1 {
			endpoint = all[0].URL
		}
	}
	return checkName{srv.shownAs(), endpoint}
}

// droppedMetric is the number of group/versions of each server that exceed the limits on its
// discovery.
type droppedMetric struct {
	s    *Controller
	desc *prometheus.Desc
}

func newDroppedMetric(s *Controller) *droppedMetric {
	return &droppedMetric{s, prometheus.NewDesc("portico_discovery_dropped_group_versions",
		"Group/versions that discovery leaves out, or has by name only, because they are beyond the limits on the discovery of one server, by backend or APIService.",
		[]string{"backend"}, nil)}
}

// Describe implements prometheus.Collector.
func (m *droppedMetric) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

// Collect implements prometheus.Collector.
func (m *droppedMetric) Collect(to chan<- prometheus.Metric) {
	for _, srv := range m.s.liveServers() {
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(srv.Source.Dropped()), srv.shownAs())
	}
}
