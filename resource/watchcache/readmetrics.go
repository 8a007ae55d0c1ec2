package watchcache

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

// reads count how reads found the cache. Safe for concurrent use.
type reads struct {
	consistent *prometheus.CounterVec
	waits      *prometheus.HistogramVec
}

func newReads() reads {
	return reads{
		consistent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_cache_consistent_read_total",
			Help: "Reads of the latest state, by whether they succeeded and whether the storage had to answer them.",
		}, []string{"group", "resource", "success", "fallback"}),
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_watch_cache_read_wait_seconds",
			Help:    "Time that reads waited for the watch cache to be as new as they asked, in seconds. Those that did not wait are left out.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3},
		}, []string{"group", "resource"}),
	}
}

// readSeries are the reads of one resource, made with the first of a sort: most
// of many resources are not read.
type readSeries struct {
	all    *reads
	info   *resource.Info
	served atomic.Pointer[prometheus.Counter]
	waited atomic.Pointer[prometheus.Observer]
}

// fromCache counts a read of the latest state that memory answered.
func (s *readSeries) fromCache() {
	c := s.served.Load()
	if c == nil {
		made := s.all.consistent.WithLabelValues(s.info.Group, s.info.Resource, "true", "false")
		c = &made
		s.served.Store(c)
	}
	(*c).Inc()
}

// fromBeneath counts one that the store beneath answered, or failed to.
func (s *readSeries) fromBeneath(err error) {
	success := "true"
	if err != nil {
		success = "false"
	}
	s.all.consistent.WithLabelValues(s.info.Group, s.info.Resource, success, "true").Inc()
}

// wait notes how long a read waited.
func (s *readSeries) wait(d time.Duration) {
	o := s.waited.Load()
	if o == nil {
		made := s.all.waits.WithLabelValues(s.info.Group, s.info.Resource)
		o = &made
		s.waited.Store(o)
	}
	(*o).Observe(d.Seconds())
}
