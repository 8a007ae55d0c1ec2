package serve

import (
	"net/http"
	"strconv"
	"time"

	"portico/resource"
)

// request counts one that is over. What the server made of a request for
// somebody else's API is an error, and ended the request, unless its deadline is
// counted for that already.
func (m *Metrics) request(r *http.Request, x *exchange, code int, took time.Duration) {
	s := m.seriesFor(labelsOf(r, x.action, x.component), code)
	s.observe(took, x.parts.Load().waitedInAll())
	if s.size != nil {
		s.size.observe(x.bytes)
	}
	s.counter(code).Add(1)
	if s.labels.component != defaultComponent && code >= http.StatusInternalServerError && !x.terminated {
		m.terminations.WithLabelValues(append(withoutDryRun(s.labels.values()), strconv.Itoa(code))...).Inc()
	}
}

// longRunning counts one that has begun; the returned function, that it is over.
func (m *Metrics) longRunning(r *http.Request, a *resource.Action) (ended func()) {
	s := m.seriesFor(labelsOf(r, a, ""), http.StatusOK)
	s.lasting.Store(true)
	s.long.Add(1)
	return func() { s.long.Add(-1) }
}

// terminated counts a request that the server ended by itself.
func (m *Metrics) terminated(r *http.Request, a *resource.Action, code int) {
	l := m.proven(labelsOf(r, a, ""))
	m.terminations.WithLabelValues(append(withoutDryRun(l.values()), strconv.Itoa(code))...).Inc()
}

// outlived counts a handler that ended after the time of its request.
func (m *Metrics) outlived(returned bool) {
	status := "ok"
	if !returned {
		status = "panic"
	}
	m.postTimeout.WithLabelValues("timeout-handler", status).Inc()
}

// aborted counts a request that was given up in the middle.
func (m *Metrics) aborted(r *http.Request, a *resource.Action) {
	l := m.proven(labelsOf(r, a, ""))
	m.aborts.WithLabelValues(withoutComponent(l.values())...).Inc()
}

// proven returns the labels, without the resource if nobody was ever answered
// that it exists.
func (m *Metrics) proven(l labels) labels {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.series[l] == nil {
		return l.unresolved()
	}
	return l
}

// seriesFor returns the series to count an answer under. A refusal does not
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
	return m.makeSeries(l)
}

// makeSeries returns the series of the labels, made if it is not there. m.mu is
// held.
func (m *Metrics) makeSeries(l labels) *series {
	if s := m.series[l]; s != nil {
		return s
	}
	var shared *sharedSeries
	if l.dryRun != "" {
		real := l
		real.dryRun = ""
		shared = m.makeSeries(real).sharedSeries
	}
	s := newSeries(l, shared)
	m.series[l] = s
	return s
}

// provesResource reports whether only an existing resource is answered so.
func provesResource(code int) bool {
	return code < 400 || code == http.StatusConflict || code == http.StatusUnprocessableEntity || code == http.StatusGone
}
