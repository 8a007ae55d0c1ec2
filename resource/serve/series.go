package serve

import (
	"maps"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

// maxSeries bounds the sets of labels that requests are counted under, about
// 2 KiB each. Once reached, new ones are counted without their resource.
const maxSeries = 4096

// series are the metrics of one set of labels, looked up once. Safe for
// concurrent use.
type series struct {
	labels   labels
	requests *prometheus.CounterVec
	duration prometheus.Observer
	size     prometheus.Observer // nil for verbs whose answers are not measured
	codes    atomic.Pointer[map[int]prometheus.Counter]
}

// counter returns the counter of answers with the status.
func (s *series) counter(code int) prometheus.Counter {
	for {
		counters := s.codes.Load()
		if c := (*counters)[code]; c != nil {
			return c
		}
		more := maps.Clone(*counters)
		more[code] = s.requests.WithLabelValues(append(s.labels.values(), strconv.Itoa(code))...)
		s.codes.CompareAndSwap(counters, &more)
	}
}

// request counts one that is over.
func (m *Metrics) request(r *http.Request, x *exchange, code int, took time.Duration) {
	s := m.seriesFor(labelsOf(r, x.action, x.component), code)
	s.duration.Observe(took.Seconds())
	if s.size != nil {
		s.size.Observe(float64(x.bytes))
	}
	s.counter(code).Inc()
}

// longRunning counts one that has begun; the returned function, that it is over.
func (m *Metrics) longRunning(r *http.Request, a *resource.Action) (ended func()) {
	l := labelsOf(r, a, "")
	if !m.known(l) && m.full() {
		l = l.unresolved()
	}
	gauge := m.long.WithLabelValues(l.withoutDryRun()...)
	gauge.Inc()
	return gauge.Dec
}

// terminated counts a request that the server ended by itself.
func (m *Metrics) terminated(r *http.Request, a *resource.Action, code int) {
	l := labelsOf(r, a, "")
	if !m.known(l) {
		l = l.unresolved()
	}
	m.terminations.WithLabelValues(append(l.withoutDryRun(), strconv.Itoa(code))...).Inc()
}

// aborted counts a request that was given up in the middle.
func (m *Metrics) aborted(r *http.Request, a *resource.Action) {
	l := labelsOf(r, a, "")
	if !m.known(l) {
		l = l.unresolved()
	}
	m.aborts.WithLabelValues(l.withoutDryRun()...).Inc()
}

func (m *Metrics) known(l labels) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.series[l] != nil
}

func (m *Metrics) full() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.series) >= maxSeries
}

// seriesFor returns the metrics to count an answer under. A refusal does not
// prove that what was asked for exists, so it makes no new set of labels.
func (m *Metrics) seriesFor(l labels, code int) *series {
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
	if s = m.series[l]; s != nil {
		return s
	}
	s = &series{labels: l, requests: m.requests, duration: m.durations.WithLabelValues(l.values()...)}
	if l.verb == http.MethodGet || l.verb == "LIST" {
		s.size = m.sizes.WithLabelValues(l.withoutDryRun()...)
	}
	counters := make(map[int]prometheus.Counter)
	s.codes.Store(&counters)
	m.series[l] = s
	return s
}

// provesResource reports whether only an existing resource is answered so.
func provesResource(code int) bool {
	return code < 400 || code == http.StatusConflict || code == http.StatusUnprocessableEntity || code == http.StatusGone
}
