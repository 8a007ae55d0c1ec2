package routing

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice/availability"
)

// discoveryCheck stands for the endpoint of checks that read a server's discovery
// from whichever of several endpoints answers.
const discoveryCheck = "discovery"

// checkMetrics count the checks of servers, for as long as they are checked. Safe
// for concurrent use; a prometheus.Collector.
type checkMetrics struct {
	mu      sync.Mutex
	targets map[checkName]*checkTraffic
}

// checkName is what is checked.
type checkName struct{ backend, endpoint string }

// checkTraffic are the metrics of one target.
type checkTraffic struct {
	passed, failed prometheus.Counter
	took           prometheus.Histogram
}

func newCheckMetrics() *checkMetrics {
	return &checkMetrics{targets: map[checkName]*checkTraffic{}}
}

// watched returns the targets with their probes counted, and forgets all targets
// but these. A target that is still checked by an earlier probe is counted as
// before. name says what a target is shown as.
func (m *checkMetrics) watched(targets []availability.Target, name func(i int) checkName) []availability.Target {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[checkName]*checkTraffic, len(targets))
	for i := range targets {
		n := name(i)
		counts := m.targets[n]
		if counts == nil {
			counts = newCheckTraffic(n)
		}
		next[n] = counts
		probe := targets[i].Probe
		targets[i].Probe = func(ctx context.Context) error {
			started := time.Now()
			err := probe(ctx)
			counts.count(time.Since(started), err)
			return err
		}
	}
	m.targets = next
	return targets
}

// checkNameOf is what a target of the server is shown as: by its endpoint, by
// discoveryCheck, or by the URL of a group/version that the server does not list.
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

func newCheckTraffic(n checkName) *checkTraffic {
	labels := prometheus.Labels{"backend": n.backend, "endpoint": n.endpoint}
	counter := func(result string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portico_upstream_checks_total", Help: "Active checks of an endpoint, by how they ended: passed or failed.",
			ConstLabels: prometheus.Labels{"backend": n.backend, "endpoint": n.endpoint, "result": result},
		})
	}
	return &checkTraffic{
		passed: counter("passed"), failed: counter("failed"),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "portico_upstream_check_duration_seconds", Help: "How long active checks of an endpoint took, in seconds.",
			Buckets: checkBuckets(), ConstLabels: labels,
		}),
	}
}

// checkBuckets are few: checks are many, and end within a second or so.
func checkBuckets() []float64 { return []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 5} }

func (c *checkTraffic) count(took time.Duration, err error) {
	c.took.Observe(took.Seconds())
	if err != nil {
		c.failed.Inc()
		return
	}
	c.passed.Inc()
}

// Describe says nothing beforehand: what there is comes and goes.
func (m *checkMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect shows what was counted.
func (m *checkMetrics) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.targets {
		to <- c.passed
		to <- c.failed
		to <- c.took
	}
}
