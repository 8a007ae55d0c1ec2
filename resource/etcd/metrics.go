package etcd

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/resource"
)

// operation is the kind of a request, under kube-apiserver's name for it.
type operation uint8

const (
	opGet operation = iota
	opList
	opListKeys
	opRevision
	opCreate
	opUpdate
	opDelete
	operations // their number
)

// String is the value of the label operation.
func (o operation) String() string {
	return [operations]string{"get", "list", "listOnlyKeys", "getCurrentResourceVersion", "create", "update", "delete"}[o]
}

const (
	// statusEvery is how long the size of the database is reported before it is read again.
	statusEvery = 30 * time.Second
	// statusTimeout bounds that read, of all members together: a scrape must not wait for an etcd that hangs.
	statusTimeout = time.Second
)

// metrics count the requests of a client. Safe for concurrent use.
type metrics struct {
	trace     func(ctx context.Context, operation, group, resource string, start time.Time, err error) // may be nil
	durations *prometheus.HistogramVec
	requests  *prometheus.CounterVec
	failures  *prometheus.CounterVec
	progress  prometheus.Counter
	rejected  prometheus.Counter
	leases    prometheus.Histogram
	leading   *prometheus.GaugeVec
}

func newMetrics(trace func(ctx context.Context, operation, group, resource string, start time.Time, err error)) *metrics {
	labels := []string{"operation", "group", "resource"}
	return &metrics{
		trace: trace,
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "etcd_request_duration_seconds",
			Help:    "Time that etcd took to answer, in seconds. Requests for no resource have empty labels.",
			Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, labels),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_requests_total", Help: "Requests to etcd.",
		}, labels),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_request_errors_total", Help: "Requests to etcd that failed.",
		}, labels),
		progress: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "etcd_bookmark_total", Help: "Progress notifications of etcd on the watch of this process.",
			ConstLabels: prometheus.Labels{"group": "", "resource": ""},
		}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "portico_etcd_refused_requests_total", Help: "Requests rejected, or reads canceled, because etcd did not answer.",
		}),
		leases: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "etcd_lease_object_counts", Help: "Objects attached to one lease.",
			Buckets: []float64{10, 50, 100, 500, 1000, 2500, 5000},
		}),
		leading: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "leader_election_master_status", Help: "1 while this process is the leader of an election, 0 while another one may be.",
		}, []string{"name"}),
	}
}

// scope counts the requests for one resource; without group and resource, all others. A
// resource without requests has no series. Safe for concurrent use.
type scope struct {
	metrics         *metrics
	group, resource string
}

// count counts a request that began at start and ended with err, unless the breaker
// rejected it; ctx is its caller's.
func (s *scope) count(ctx context.Context, op operation, start time.Time, err error) {
	if err != nil && rejected(err) {
		return
	}
	m, name := s.metrics, op.String()
	if m.trace != nil {
		m.trace(ctx, name, s.group, s.resource, start, err)
	}
	m.durations.WithLabelValues(name, s.group, s.resource).Observe(time.Since(start).Seconds())
	m.requests.WithLabelValues(name, s.group, s.resource).Inc()
	if err != nil {
		m.failures.WithLabelValues(name, s.group, s.resource).Inc()
	}
}

// Forget removes the metrics of a resource that is no longer served.
func (c *Client) Forget(info *resource.Info) {
	m := c.metrics
	for op := range operations {
		for _, series := range []interface{ DeleteLabelValues(...string) bool }{m.durations, m.requests, m.failures} {
			series.DeleteLabelValues(op.String(), info.Group, info.Resource)
		}
	}
}

// Metrics returns the metrics of the client, under kube-apiserver's names (docs/wire.md
// 1.6).
func (c *Client) Metrics() prometheus.Collector {
	return &collector{
		client: c,
		sizes: prometheus.NewDesc("apiserver_storage_size_bytes",
			"Size of the database file of etcd, in bytes.", []string{"storage_cluster_id"}, nil),
		quota: prometheus.NewDesc("portico_etcd_quota_bytes",
			"Size of the database file at which etcd refuses writes, in bytes; etcd before 3.6 does not report it.", nil, nil),
		silent: prometheus.NewDesc("portico_etcd_silent",
			"1 while etcd does not answer and requests that need it are rejected, else 0.", nil, nil),
	}
}

// collector is a prometheus.Collector.
type collector struct {
	client *Client
	sizes  *prometheus.Desc
	quota  *prometheus.Desc
	silent *prometheus.Desc

	mu     sync.Mutex
	status *clientv3.StatusResponse // nil if unknown
	read   time.Time
}

func (m *collector) parts() []prometheus.Collector {
	all := m.client.metrics
	return []prometheus.Collector{all.durations, all.requests, all.failures, all.progress, all.rejected, all.leases, all.leading}
}

// Describe implements prometheus.Collector.
func (m *collector) Describe(to chan<- *prometheus.Desc) {
	to <- m.sizes
	to <- m.quota
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
	status := m.storageStatus()
	if status == nil {
		return
	}
	to <- prometheus.MustNewConstMetric(m.sizes, prometheus.GaugeValue, float64(status.DbSize), "etcd-0")
	if status.DbSizeQuota > 0 {
		to <- prometheus.MustNewConstMetric(m.quota, prometheus.GaugeValue, float64(status.DbSizeQuota))
	}
}

// storageStatus returns the status of the first member of etcd that answers; nil if none does in time.
func (m *collector) storageStatus() *clientv3.StatusResponse {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.read.IsZero() && time.Since(m.read) < statusEvery {
		return m.status
	}
	m.read, m.status = time.Now(), nil
	endpoints := m.client.etcd.Endpoints()
	for _, endpoint := range endpoints {
		ctx, cancel := context.WithTimeout(m.client.etcd.Ctx(), statusTimeout/time.Duration(len(endpoints)))
		status, err := m.client.etcd.Status(ctx, endpoint)
		cancel()
		if err == nil {
			m.status = status
			break
		}
		m.client.log.Debug("cannot read the status of etcd", "endpoint", endpoint, "error", err)
	}
	return m.status
}
