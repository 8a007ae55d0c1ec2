package watchstream

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

// maxSeries bounds the resources with metrics of their own, so that resources that come and
// go do not grow memory without bound. Further ones share series with empty labels.
const maxSeries = 4096

// Metrics are the metrics of watches (docs/wire.md 1.6). It is a prometheus.Collector and
// safe for concurrent use.
type Metrics struct {
	events *prometheus.CounterVec
	sizes  *prometheus.HistogramVec
	lists  *prometheus.HistogramVec

	mu     sync.Mutex
	series map[schema.GroupVersionResource]*series
}

func newMetrics() *Metrics {
	names := []string{"group", "version", "resource"}
	return &Metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total",
			Help: "Events sent to watchers.",
		}, names),
		sizes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_watch_events_sizes",
			Help:    "Sizes of the events sent to watchers, before compression, in bytes.",
			Buckets: prometheus.ExponentialBuckets(1024, 2, 8),
		}, names),
		lists: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_watch_list_duration_seconds",
			Help:    "Time from the start of a watch with initial events and bookmarks to the end of its initial events, in seconds.",
			Buckets: []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300},
		}, append(names, "scope")),
		series: map[schema.GroupVersionResource]*series{},
	}
}

// series are the metrics of one resource, looked up once for each watch.
type series struct {
	events prometheus.Counter
	sizes  prometheus.Observer
}

func (m *Metrics) of(gvr schema.GroupVersionResource) *series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.series[gvr]; !ok && len(m.series) >= maxSeries {
		gvr = schema.GroupVersionResource{}
	}
	s, ok := m.series[gvr]
	if !ok {
		s = &series{m.events.WithLabelValues(gvr.Group, gvr.Version, gvr.Resource), m.sizes.WithLabelValues(gvr.Group, gvr.Version, gvr.Resource)}
		m.series[gvr] = s
	}
	return s
}

// Forget removes the series of a resource that is no longer served.
func (m *Metrics) Forget(info *resource.Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, version := range info.Versions {
		delete(m.series, info.GVR(version))
		m.events.DeleteLabelValues(info.Group, version, info.Resource)
		m.sizes.DeleteLabelValues(info.Group, version, info.Resource)
		for _, scope := range []string{"resource", "namespace", "cluster"} {
			m.lists.DeleteLabelValues(info.Group, version, info.Resource, scope)
		}
	}
}

// count counts an event of that many bytes before compression.
func (s *series) count(size int) {
	s.events.Inc()
	s.sizes.Observe(float64(size))
}

// Listed counts a watch that has sent its initial events. scope is resource, namespace or
// cluster.
func (m *Metrics) Listed(gvr schema.GroupVersionResource, scope string, took time.Duration) {
	m.lists.WithLabelValues(gvr.Group, gvr.Version, gvr.Resource, scope).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	m.events.Describe(to)
	m.sizes.Describe(to)
	m.lists.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	m.events.Collect(to)
	m.sizes.Collect(to)
	m.lists.Collect(to)
}

// plainSize returns the size of a frame before compression, which is in the last four bytes
// of a gzip member (RFC 1952, 2.3.1).
func plainSize(frame []byte, packed bool) int {
	if !packed {
		return len(frame)
	}
	return int(binary.LittleEndian.Uint32(frame[len(frame)-4:]))
}
