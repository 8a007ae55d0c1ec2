package watchcache

import (
	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

// sizeSamples is how many objects of a resource are looked at to estimate the
// size of all of them.
const sizeSamples = 64

// Metrics returns what shows the state of the cache under upstream's names
// (docs/wire.md 1.6), for the resources that shown returns when it is asked: each
// once. Of the state nothing is counted for it that was not there before, so that
// nobody else pays for it; a resource costs some microseconds each time. Of
// reads, those are counted and timed that have to be (readmetrics.go).
func (c *Cache) Metrics(shown func() []*resource.Info) prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &collector{
		cache: c, shown: shown,
		objects:      desc("apiserver_resource_objects", "Stored objects of a resource; -1: not known yet.", "group", "resource"),
		stored:       desc("apiserver_storage_objects", "Stored objects of a resource; -1: not known yet. See apiserver_resource_objects.", "resource"),
		size:         desc("apiserver_resource_size_estimate_bytes", "About how large the objects of a resource are together, in bytes; -1: not known yet.", "group", "resource"),
		revision:     desc("apiserver_watch_cache_resource_version", "Revision that the watch cache is at, its last 15 digits.", "group", "resource"),
		started:      desc("apiserver_watch_cache_initializations_total", "How often the watch cache read its whole state.", "group", "resource"),
		received:     desc("apiserver_watch_cache_events_received_total", "Changes that the watch cache took in.", "group", "resource"),
		dispatched:   desc("apiserver_watch_cache_events_dispatched_total", "Changes that the watch cache offered to watchers.", "group", "resource"),
		capacity:     desc("watch_cache_capacity", "Changes that the watch cache has room for before it grows.", "group", "resource"),
		unresponsive: desc("apiserver_terminated_watchers_total", "Watches that were ended because their clients were too slow.", "group", "resource"),
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
	m.cache.reads.consistent.Describe(to)
	m.cache.reads.waits.Describe(to)
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	m.cache.reads.consistent.Collect(to)
	m.cache.reads.waits.Collect(to)
	now := m.cache.now.Load()
	for _, info := range m.shown() {
		count, size := -1, -1
		if now != nil {
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

// collectLog tells of a resource's recent history. What has not happened yet
// is not told: most resources are quiet.
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

// measure returns how many objects there are below prefix, and about how large
// they are together, in bytes, by the sizes of some that lie evenly among them.
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
