package handlers

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
)

const (
	// maxWatchSeries bounds the resources that watches are counted by, about
	// 1 KiB each with their durations. Once reached, those watched for the first
	// time are counted together, without a name.
	maxWatchSeries = 4096
	// smallestBound is the first upper bound of the sizes of events, in bytes;
	// each of the sizeBounds is twice the one before.
	smallestBound = 1024
	sizeBounds    = 8
)

// watchMetrics count what all watches send (docs/wire.md 1.6). Watches of one
// resource share a few numbers, looked up once for each watch and added to once
// for each piece that is sent: at 100,000 events a second, an observation of a
// histogram for each would be seen. Safe for concurrent use; a
// prometheus.Collector.
type watchMetrics struct {
	events, sizes *prometheus.Desc
	lists         *prometheus.HistogramVec

	mu     sync.Mutex
	series map[schema.GroupVersionResource]*watchSeries
}

func newWatchMetrics() *watchMetrics {
	names := []string{"group", "version", "resource"}
	return &watchMetrics{
		events: prometheus.NewDesc("apiserver_watch_events_total", "Events sent to watchers.", names, nil),
		sizes:  prometheus.NewDesc("apiserver_watch_events_sizes", "Sizes of the events sent to watchers, before compression, in bytes.", names, nil),
		lists: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_watch_list_duration_seconds",
			Help:    "Time from the beginning of a watch that takes the place of a list to the end of its initial events, in seconds.",
			Buckets: []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300},
		}, append(names, "scope")),
		series: map[schema.GroupVersionResource]*watchSeries{},
	}
}

// of returns the numbers of one resource.
func (m *watchMetrics) of(gvr schema.GroupVersionResource) *watchSeries {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.series[gvr]
	if s == nil && len(m.series) >= maxWatchSeries {
		gvr = schema.GroupVersionResource{}
		s = m.series[gvr]
	}
	if s == nil {
		s = &watchSeries{gvr: gvr}
		m.series[gvr] = s
	}
	return s
}

// listed notes that a watch has sent the state it began with.
func (m *watchMetrics) listed(gvr schema.GroupVersionResource, scope string, took time.Duration) {
	m.lists.WithLabelValues(gvr.Group, gvr.Version, gvr.Resource, scope).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (m *watchMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- m.events
	to <- m.sizes
	m.lists.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *watchMetrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	all := make([]*watchSeries, 0, len(m.series))
	for _, s := range m.series {
		all = append(all, s)
	}
	m.mu.Unlock()
	for _, s := range all {
		labels := []string{s.gvr.Group, s.gvr.Version, s.gvr.Resource}
		count, upTo := uint64(0), make(map[float64]uint64, sizeBounds)
		for i := range s.counts {
			count += s.counts[i].Load()
			if i < sizeBounds {
				upTo[float64(int(smallestBound)<<i)] = count
			}
		}
		to <- prometheus.MustNewConstMetric(m.events, prometheus.CounterValue, float64(count), labels...)
		to <- prometheus.MustNewConstHistogram(m.sizes, count, float64(s.bytes.Load()), upTo, labels...)
	}
	m.lists.Collect(to)
}

// watchSeries are the events of one resource: how many of each size, the last
// those above all bounds, and how many bytes together.
type watchSeries struct {
	gvr    schema.GroupVersionResource
	counts [sizeBounds + 1]atomic.Uint64
	bytes  atomic.Uint64
}

// tally is what one watch is about to send. The zero tally is empty.
type tally struct {
	counts [sizeBounds + 1]uint32
	bytes  uint64
}

// add counts one event of that many bytes.
func (t *tally) add(size int) {
	t.counts[min(bits.Len64(uint64(size-1)/smallestBound), sizeBounds)]++
	t.bytes += uint64(size)
}

// addTo moves the tally to its series.
func (t *tally) addTo(s *watchSeries) {
	if t.bytes == 0 {
		return
	}
	for i, n := range t.counts {
		if n > 0 {
			s.counts[i].Add(uint64(n))
		}
	}
	s.bytes.Add(t.bytes)
	*t = tally{}
}

// plainSize is the size of a frame before it was packed, which a gzip member's
// last four bytes tell.
func plainSize(frame []byte, packed bool) int {
	if !packed {
		return len(frame)
	}
	return int(binary.LittleEndian.Uint32(frame[len(frame)-4:]))
}

// scopeOf is the scope that a watch is counted under.
func scopeOf(act *resource.Action) string {
	switch {
	case act.Name != "":
		return "resource"
	case act.Namespace != "":
		return "namespace"
	}
	return "cluster"
}
