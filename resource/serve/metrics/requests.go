package metrics

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"portico/resource"
)

// maxSeries bounds the label sets of requests; each takes about 3 KiB. Requests with
// further label sets are counted without their resource.
const maxSeries = 4096

// Buckets of upstream's histograms of requests, in seconds and bytes.
var (
	durationBuckets = []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}
	sliBuckets      = durationBuckets[2:]
	sizeBuckets     = []float64{1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}
)

// requests has upstream's metrics of requests, and the label sets that were resolved.
type requests struct {
	total, terminations, aborts, postTimeout *prometheus.CounterVec
	duration, sli, size                      *prometheus.HistogramVec
	long                                     *prometheus.GaugeVec

	mu     sync.RWMutex
	series map[labels]*series
	// exists reports whether a resource is served now; nil: a response proves it.
	exists func(group, resource string) bool
}

// series has the metrics of one label set, so that a request resolves none by name.
type series struct {
	labels   labels
	duration prometheus.Observer
	sli      prometheus.Observer // nil for dry runs
	size     prometheus.Observer // nil unless the verb is GET or LIST
	totals   sync.Map            // prometheus.Counter by status code
}

func newRequests(factory promauto.Factory) *requests {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return factory.NewCounterVec(prometheus.CounterOpts{Name: "apiserver_" + name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return factory.NewHistogramVec(prometheus.HistogramOpts{Name: "apiserver_" + name, Help: help, Buckets: buckets}, labels)
	}
	all, fewer := labelNames(), withoutDryRun(labelNames())
	return &requests{
		series: make(map[labels]*series),
		total: counter("request_total",
			"Requests answered, by verb, dry run, resource, scope, component and status code.", append(labelNames(), "code")...),
		terminations: counter("request_terminations_total",
			"Requests that the server ended by itself: too many, too long, shutting down, or for a server that could not answer.", append(withoutDryRun(labelNames()), "code")...),
		aborts: counter("request_aborts_total",
			"Requests with a connection or stream that ended before their response was complete, mostly because the client closed it.", withoutComponent(labelNames())...),
		postTimeout: counter("request_post_timeout_total",
			"Handlers that continued after their request was answered with a timeout, by how they ended: ok or panic.", "source", "status"),
		duration: histogram("request_duration_seconds",
			"Time from the request's header to the end of its response, in seconds.", durationBuckets, all...),
		sli: histogram("request_sli_duration_seconds",
			"Time from the request's header to the end of its response, without the time spent in admission webhooks, in seconds; dry runs are left out.", sliBuckets, fewer...),
		size: histogram("response_sizes", "Size of the bodies of responses to GET and LIST, in bytes.", sizeBuckets, fewer...),
		long: factory.NewGaugeVec(prometheus.GaugeOpts{Name: "apiserver_longrunning_requests", Help: "Long-running requests in progress."}, fewer),
	}
}

// Response describes a request that has ended.
type Response struct {
	// Component answers the request; "" is the API server.
	Component string
	// Code is the status, Bytes the length of the body.
	Code  int
	Bytes int64
	// Took is the time from the request's header to its end, Waited the part of it
	// that other programs took.
	Took, Waited time.Duration
	// Terminated: Terminated has counted the request already.
	Terminated bool
}

// Answered counts a request that has ended. A server error of another component ends
// the request in this server's name, so it is counted as a termination too.
func (m *requests) Answered(r *http.Request, a *resource.Action, res Response) {
	s := m.seriesFor(labelsOf(r, a, res.Component), res.Code)
	s.duration.Observe(res.Took.Seconds())
	if s.sli != nil {
		s.sli.Observe(max(0, res.Took-res.Waited).Seconds())
	}
	if s.size != nil {
		s.size.Observe(float64(res.Bytes))
	}
	m.countTotal(s, res.Code)
	if s.labels.component != defaultComponent && res.Code >= http.StatusInternalServerError && !res.Terminated {
		m.terminations.WithLabelValues(append(withoutDryRun(s.labels.values()), strconv.Itoa(res.Code))...).Inc()
	}
}

// LongRunning counts a long-running request until ended is called.
func (m *requests) LongRunning(r *http.Request, a *resource.Action) (ended func()) {
	s := m.seriesFor(labelsOf(r, a, ""), http.StatusOK)
	now := m.long.WithLabelValues(withoutDryRun(s.labels.values())...)
	now.Inc()
	return now.Dec
}

// Terminated counts a request that the server ends by itself.
func (m *requests) Terminated(r *http.Request, a *resource.Action, code int) {
	l := m.proven(labelsOf(r, a, ""))
	m.terminations.WithLabelValues(append(withoutDryRun(l.values()), strconv.Itoa(code))...).Inc()
}

// EndedAfterTimeout counts a handler that ended after its request was answered with a
// timeout; returned is false for one that panicked.
func (m *requests) EndedAfterTimeout(returned bool) {
	status := "ok"
	if !returned {
		status = "panic"
	}
	m.postTimeout.WithLabelValues("timeout-handler", status).Inc()
}

// Aborted counts a request that ended before its response was complete.
func (m *requests) Aborted(r *http.Request, a *resource.Action) {
	l := m.proven(labelsOf(r, a, ""))
	m.aborts.WithLabelValues(withoutComponent(l.values())...).Inc()
}

// countTotal counts a response with the status, unless its series has been forgotten meanwhile.
func (m *requests) countTotal(s *series, code int) {
	if c, ok := s.totals.Load(code); ok {
		c.(prometheus.Counter).Inc()
		return
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.series[s.labels] != s {
		return
	}
	c := m.total.WithLabelValues(append(s.labels.values(), strconv.Itoa(code))...)
	c.Inc()
	s.totals.Store(code, c)
}

// proven returns the labels, without the resource if no response has shown that it
// exists.
func (m *requests) proven(l labels) labels {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.series[l] == nil {
		return l.unresolved()
	}
	return l
}

// seriesFor returns the series for a response. A refusal does not prove that the
// resource exists, so it makes no new label set: clients cannot fill the memory with
// invented names.
func (m *requests) seriesFor(l labels, code int) *series {
	m.mu.RLock()
	s, full := m.series[l], len(m.series) >= maxSeries
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	if full || !provesResource(code) {
		l = l.unresolved()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.exists != nil && l.resource != "" && !m.exists(l.group, l.resource) {
		l = l.unresolved()
	}
	if s := m.series[l]; s != nil {
		return s
	}
	fewer := withoutDryRun(l.values())
	s = &series{labels: l, duration: m.duration.WithLabelValues(l.values()...)}
	if l.dryRun == "" {
		s.sli = m.sli.WithLabelValues(fewer...)
	}
	if l.verb == http.MethodGet || l.verb == "LIST" {
		s.size = m.size.WithLabelValues(fewer...)
	}
	m.series[l] = s
	return s
}

// provesResource reports whether a response with the status proves that the resource
// exists.
func provesResource(code int) bool {
	return code < 400 || code == http.StatusConflict || code == http.StatusUnprocessableEntity || code == http.StatusGone
}

// SetExists sets what reports whether a resource is served now: a request that ends after its resource
// is counted without it. It must be called before the first request.
func (m *requests) SetExists(exists func(group, resource string) bool) { m.exists = exists }

// Forget removes the series of a resource that is no longer served.
func (m *requests) Forget(info *resource.Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l, s := range m.series {
		if l.group != info.Group || l.resource != info.Resource {
			continue
		}
		delete(m.series, l)
		all, fewer := l.values(), withoutDryRun(l.values())
		m.duration.DeleteLabelValues(all...)
		m.sli.DeleteLabelValues(fewer...)
		m.size.DeleteLabelValues(fewer...)
		m.long.DeleteLabelValues(fewer...)
		s.totals.Range(func(code, _ any) bool {
			return m.total.DeleteLabelValues(append(all, strconv.Itoa(code.(int)))...) || true
		})
		m.terminations.DeletePartialMatch(prometheus.Labels{"group": l.group, "resource": l.resource})
		m.aborts.DeletePartialMatch(prometheus.Labels{"group": l.group, "resource": l.resource})
	}
}
