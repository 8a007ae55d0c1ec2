package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// PathSLIs is the path of the results of health checks. They have a path of their own
// because they are read every few seconds, to compute availability.
const PathSLIs = "/metrics/slis"

// Checks counts the results of health checks under upstream's names. Safe for
// concurrent use.
type Checks struct {
	registry *prometheus.Registry
	last     *prometheus.GaugeVec
	total    *prometheus.CounterVec
}

// NewChecks returns the Checks of a process that started at the given time.
func NewChecks(started time.Time) *Checks {
	c := &Checks{registry: prometheus.NewRegistry()}
	factory := promauto.With(c.registry)
	c.last = factory.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kubernetes_healthcheck", Help: "Result of the last run of a health check: 1 is success, 0 failure.",
	}, []string{"name", "type"})
	c.total = factory.NewCounterVec(prometheus.CounterOpts{
		Name: "kubernetes_healthchecks_total", Help: "Results of health checks.",
	}, []string{"name", "type", "status"})
	factory.NewGauge(prometheus.GaugeOpts{
		Name: "process_start_time_seconds", Help: "Start time of the process since the Unix epoch, in seconds.",
	}).Set(float64(started.UnixMilli()) / 1000)
	return c
}

// Observe counts the result of a check that ran for an endpoint.
func (c *Checks) Observe(name, endpoint string, err error) {
	value, status := 1.0, "success"
	if err != nil {
		value, status = 0, "error"
	}
	c.last.WithLabelValues(name, endpoint).Set(value)
	c.total.WithLabelValues(name, endpoint, status).Inc()
}

// Handler serves the results at PathSLIs.
func (c *Checks) Handler() http.Handler {
	return promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes})
}
