package watchcache

import (
	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

// readMetrics count reads. Safe for concurrent use.
type readMetrics struct {
	consistent *prometheus.CounterVec
	waits      *prometheus.HistogramVec
}

func newReadMetrics() readMetrics {
	return readMetrics{
		consistent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_cache_consistent_read_total",
			Help: "Reads of the latest state, by success and by whether the storage answered them.",
		}, []string{"group", "resource", "success", "fallback"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_watch_cache_read_wait_seconds",
			Help:    "Time that reads waited until the watch cache had reached their revision, in seconds. Reads that did not wait are not counted.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3},
		}, []string{"group", "resource"}),
	}
}

// forget removes the series of a resource.
func (m *readMetrics) forget(info *resource.Info) {
	for _, success := range []string{"true", "false"} {
		for _, fallback := range []string{"true", "false"} {
			m.consistent.DeleteLabelValues(info.Group, info.Resource, success, fallback)
		}
	}
	m.waits.DeleteLabelValues(info.Group, info.Resource)
}

// sizeSamples is the number of objects from which the size of a resource is estimated.
const sizeSamples = 64

// Metrics returns the metrics of the cache under kube-apiserver's names (docs/wire.md 1.6),
// for the resources that shown returns, each once. Metrics of the state are computed when
// they are collected, which takes some microseconds for each resource.
func (c *Cache) Metrics(shown func() []*resource.Info) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		cache: c, shown: shown,
		objects:      desc("apiserver_resource_objects", "Stored objects of a resource; -1 if not known yet.", "group", "resource"),
		stored:       desc("apiserver_storage_objects", "Stored objects of a resource; -1 if not known yet. See apiserver_resource_objects.", "resource"),
		size:         desc("apiserver_resource_size_estimate_bytes", "Estimated size of the objects of a resource, in bytes; -1 if not known yet.", "group", "resource"),
		revision:     desc("apiserver_watch_cache_resource_version", "Revision of the watch cache, its last 15 digits.", "group", "resource"),
		started:      desc("apiserver_watch_cache_initializations_total", "Times that the watch cache read its whole state.", "group", "resource"),
		received:     desc("apiserver_watch_cache_events_received_total", "Changes that the watch cache received.", "group", "resource"),
		dispatched:   desc("apiserver_watch_cache_events_dispatched_total", "Changes that the watch cache passed to watchers.", "group", "resource"),
		capacity:     desc("watch_cache_capacity", "Changes that the watch cache can hold before it grows.", "group", "resource"),
		unresponsive: desc("apiserver_terminated_watchers_total", "Watches that ended because their clients were too slow.", "group", "resource"),
	}
}

// collector is a prometheus.Collector.
type collector struct {
	cache *Cache
	shown func() []*resource.Info

	objects, stored, size, revision, started, received, dispatched, capacity, unresponsive *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.objects, m.stored, m.size, m.revision, m.started, m.received, m.dispatched, m.capacity, m.unresponsive} {
		to <- d
	}
	m.cache.metrics.consistent.Describe(to)
	m.cache.metrics.waits.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	m.cache.metrics.consistent.Collect(to)
	m.cache.metrics.waits.Collect(to)
	now := m.cache.now.Load()
	for _, info := range m.shown() {
		count, size := -1, -1
		if now.has(info.RangePath("")) {
			count, size = now.measure(info.RangePath(""))
		}
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}
		gauge(m.objects, float64(count), info.Group, info.Resource)
		gauge(m.stored, float64(count), info.GroupResource().String())
		gauge(m.size, float64(size), info.Group, info.Resource)
		if now != nil {
			gauge(m.revision, float64(now.rev%1e15), info.Group, info.Resource)
			m.collectLog(to, info)
		}
	}
}

// collectLog collects the metrics of a resource's event log that are not 0: most resources
// never change.
func (m *collector) collectLog(to chan<- prometheus.Metric, info *resource.Info) {
	m.cache.mu.Lock()
	l, resets := m.cache.eventLogs[info.RangePath("")], m.cache.resets
	m.cache.mu.Unlock()
	if l == nil {
		return
	}
	l.mu.Lock()
	changes, room, slow := l.history.next(), len(l.history.ring), l.slow
	l.mu.Unlock()
	for _, v := range []struct {
		desc *prometheus.Desc
		kind prometheus.ValueType
		n    int64
	}{
		{m.started, prometheus.CounterValue, resets},
		{m.received, prometheus.CounterValue, changes},
		{m.dispatched, prometheus.CounterValue, changes},
		{m.capacity, prometheus.GaugeValue, int64(room)},
		{m.unresponsive, prometheus.CounterValue, slow},
	} {
		if v.n > 0 {
			to <- prometheus.MustNewConstMetric(v.desc, v.kind, float64(v.n), info.Group, info.Resource)
		}
	}
}

// measure returns the number of objects below prefix and their estimated size in bytes, from
// evenly spaced samples.
func (s *snapshot) measure(prefix string) (count, size int) {
	if count = s.count(prefix, ""); count == 0 {
		return 0, 0
	}
	first, samples := s.rank(prefix), min(count, sizeSamples)
	for i := range samples {
		it, _ := s.tree.GetAt(first + i*count/samples)
		size += len(it.obj.Data)
	}
	return count, size * count / samples
}
