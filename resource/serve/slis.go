package serve

import (
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// pathSLIs is where the results of health checks are shown. They are apart from
// the other metrics because they are read every few seconds, to tell how much of
// the time a server was well.
const pathSLIs = "/metrics/slis"

// checkResults count how health checks ended. There are as many of them as there
// are checks. Safe for concurrent use; a prometheus.Collector.
type checkResults struct {
	last, total, start *prometheus.Desc
	began              float64 // Unix time

	mu     sync.Mutex
	counts map[checkName]*checkCount
}

type checkName struct{ name, endpoint string }

type checkCount struct {
	well            bool // the last time
	success, failed uint64
}

func newCheckResults(began float64) *checkResults {
	return &checkResults{
		last:   prometheus.NewDesc("kubernetes_healthcheck", "How a health check ended the last time: 1 is well.", []string{"name", "type"}, nil),
		total:  prometheus.NewDesc("kubernetes_healthchecks_total", "How often a health check ended how.", []string{"name", "type", "status"}, nil),
		start:  prometheus.NewDesc("process_start_time_seconds", "When the process began, in seconds since 1970.", nil, nil),
		began:  began,
		counts: make(map[checkName]*checkCount),
	}
}

// note counts one result of a check that was run for an endpoint.
func (c *checkResults) note(name, endpoint string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts[checkName{name, endpoint}]
	if n == nil {
		n = &checkCount{}
		c.counts[checkName{name, endpoint}] = n
	}
	if n.well = err == nil; n.well {
		n.success++
	} else {
		n.failed++
	}
}

// Describe implements prometheus.Collector.
func (c *checkResults) Describe(to chan<- *prometheus.Desc) {
	to <- c.last
	to <- c.total
	to <- c.start
}

// Collect implements prometheus.Collector.
func (c *checkResults) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.MustNewConstMetric(c.start, prometheus.GaugeValue, c.began)
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, n := range c.counts {
		last := 0.0
		if n.well {
			last = 1
		}
		to <- prometheus.MustNewConstMetric(c.last, prometheus.GaugeValue, last, at.name, at.endpoint)
		for status, count := range map[string]uint64{"success": n.success, "error": n.failed} {
			if count > 0 {
				to <- prometheus.MustNewConstMetric(c.total, prometheus.CounterValue, float64(count), at.name, at.endpoint, status)
			}
		}
	}
}

// SLIs answers /metrics/slis: how the checks of the endpoints ended, under
// upstream's names. What is asked one by one is not counted.
func (h *Health) SLIs() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(h.results)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes})
}
