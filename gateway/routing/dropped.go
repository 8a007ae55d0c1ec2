package routing

import "github.com/prometheus/client_golang/prometheus"

// droppedMetric tells how many group/versions of each server are beyond the limits on
// its discovery.
type droppedMetric struct {
	sync *Controller
	desc *prometheus.Desc
}

func newDroppedMetric(s *Controller) *droppedMetric {
	return &droppedMetric{s, prometheus.NewDesc("portico_discovery_dropped_group_versions",
		"Group/versions that discovery leaves out, or has by name only, because they are beyond the limits on the discovery of one server, by backend or APIService.",
		[]string{"backend"}, nil)}
}

func (m *droppedMetric) Describe(to chan<- *prometheus.Desc) { to <- m.desc }

func (m *droppedMetric) Collect(to chan<- prometheus.Metric) {
	for _, srv := range m.sync.liveServers() {
		to <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, float64(srv.Source.Dropped()), srv.shownAs())
	}
}
