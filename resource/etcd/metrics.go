package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// operation is what etcd is asked for, under the name that upstream counts it by.
type operation uint8

const (
	opGet operation = iota
	opList
	opListKeys
	opRevision
	opCreate
	opUpdate
	opDelete
	operations // how many there are
)

// String is the value of the label operation.
func (o operation) String() string {
	return [operations]string{"get", "list", "listOnlyKeys", "getCurrentResourceVersion", "create", "update", "delete"}[o]
}

const (
	// sizeEvery is how long a size of the database is reported before it is read again.
	sizeEvery = 30 * time.Second
	// sizeTimeout bounds asking for it: a scrape must not wait for an etcd that
	// hangs.
	sizeTimeout = time.Second
)

// traceFunc is Config.Trace.
type traceFunc func(ctx context.Context, operation, group, resource string, start time.Time, err error)

// metrics count what a client asks etcd for. Safe for concurrent use.
type metrics struct {
	trace     traceFunc // nil: none
	durations *prometheus.HistogramVec
	requests  *prometheus.CounterVec
	failures  *prometheus.CounterVec
	hedges    prometheus.Counter
	progress  prometheus.Counter
	refused   prometheus.Counter
	leases    prometheus.Histogram
}

func newMetrics(trace traceFunc) *metrics {
	labels := []string{"operation", "group", "resource"}
	return &metrics{
		trace: trace,
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "etcd_request_duration_seconds",
			Help:    "Time that etcd took to answer, in seconds. What belongs to no resource has none.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, labels),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_requests_total", Help: "Requests to etcd.",
		}, labels),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_request_errors_total", Help: "Requests to etcd that failed.",
		}, labels),
		hedges: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portico_etcd_hedged_reads_total", Help: "Reads sent to another member because the first had not answered in time.",
		}),
		progress: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "etcd_bookmark_total", Help: "Times that etcd told how far the watch of this process has come.",
			ConstLabels: prometheus.Labels{"group": "", "resource": ""},
		}),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portico_etcd_refused_requests_total", Help: "Requests that were not sent, or not waited for any longer, because etcd did not answer.",
		}),
		leases: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "etcd_lease_object_counts", Help: "Objects attached to one lease.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000},
		}),
	}
}

// account counts the requests for one resource. What was never asked has no
// series: most of many resources are quiet. Safe for concurrent use.
type account struct {
	metrics         *metrics
	group, resource string
	series          [operations]atomic.Pointer[series]
}

type series struct {
	duration prometheus.Observer
	requests prometheus.Counter
}

// note counts a request that began at start and ended with err. It was made for
// ctx. One that was refused before it was sent counts elsewhere.
func (a *account) note(ctx context.Context, op operation, start time.Time, err error) {
	if err != nil && refused(err) {
		return
	}
	if a.metrics.trace != nil {
		a.metrics.trace(ctx, op.String(), a.group, a.resource, start, err)
	}
	s := a.series[op].Load()
	if s == nil {
		s = &series{
			a.metrics.durations.WithLabelValues(op.String(), a.group, a.resource),
			a.metrics.requests.WithLabelValues(op.String(), a.group, a.resource),
		}
		a.series[op].Store(s)
	}
	s.duration.Observe(time.Since(start).Seconds())
	s.requests.Inc()
	if err != nil {
		a.metrics.failures.WithLabelValues(op.String(), a.group, a.resource).Inc()
	}
}

// Metrics returns what shows how etcd is used, under upstream's names (docs/wire.md
// 1.6).
func (c *Client) Metrics() prometheus.Collector {
	return &collector{
		client: c,
		sizes: prometheus.NewDesc("apiserver_storage_size_bytes",
			"Size of the file that etcd keeps everything in, in bytes.", []string{"storage_cluster_id"}, nil),
		silent: prometheus.NewDesc("portico_etcd_silent",
			"1 while etcd does not answer and requests that need it are refused, 0 else.", nil, nil),
	}
}

// collector is a prometheus.Collector.
type collector struct {
	client *Client
	sizes  *prometheus.Desc
	silent *prometheus.Desc

	mu    sync.Mutex
	size  int64 // 0 until etcd has told one
	asked time.Time
}

func (m *collector) parts() []prometheus.Collector {
	all := m.client.metrics
	return []prometheus.Collector{all.durations, all.requests, all.failures, all.hedges, all.progress, all.refused, all.leases}
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(to chan<- *prometheus.Desc) {
	to <- m.sizes
	to <- m.silent
	for _, part := range m.parts() {
		part.Describe(to)
	}
}

// Collect implements prometheus.Collector.
func (m *collector) Collect(to chan<- prometheus.Metric) {
	for _, part := range m.parts() {
		part.Collect(to)
	}
	silent := 0.0
	if m.client.breaker.silent() {
		silent = 1
	}
	to <- prometheus.MustNewConstMetric(m.silent, prometheus.GaugeValue, silent)
	if size := m.databaseSize(); size > 0 {
		to <- prometheus.MustNewConstMetric(m.sizes, prometheus.GaugeValue, float64(size), "etcd-0")
	}
}

// databaseSize is the last size of the first endpoint; 0 if it does not answer.
func (m *collector) databaseSize() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.asked.IsZero() && time.Since(m.asked) < sizeEvery {
		return m.size
	}
	ctx, cancel := context.WithTimeout(m.client.etcd.Ctx(), sizeTimeout)
	defer cancel()
	m.asked, m.size = time.Now(), 0
	status, err := m.client.etcd.Status(ctx, m.client.etcd.Endpoints()[0])
	if err != nil {
		m.client.log.Debug("etcd does not tell its size", "error", err)
		return 0
	}
	m.size = status.DbSize
	return m.size
}
