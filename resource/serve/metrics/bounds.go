package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Bound is a limit and how much of it is in use. Max returns 0 if there is no limit.
// fairshare.Limit is one. Safe for concurrent use.
type Bound interface {
	InUse() int
	Max() int
}

// Bounds are the limits of a server, by the label of their kind.
type Bounds struct {
	// Requests has those in flight, by readOnly and mutating, and by client those that
	// wait for their clients to send bodies or to read responses, without seats, in the level that
	// has most.
	Requests map[string]Bound
	// LongRunning has discovery for streams of discovery, and other for the rest.
	LongRunning map[string]Bound
	// Connections has user for those on which a user is authenticated, and stranger
	// for the others.
	Connections map[string]Bound
	// Rejected returns the number of connections closed because there were too many from their addresses.
	Rejected func() int64
}

// SetBounds exports the limits of the server. A process has one server with limits:
// SetBounds panics if it is called again.
func (m *Metrics) SetBounds(b Bounds) {
	m.exportBounds(b.Requests, "request_kind",
		"apiserver_current_inflight_requests", "Requests in flight that count towards the limits, by kind: readOnly, mutating, or client while the client has to send or to read (of the priority level that has most).",
		"portico_inflight_requests_limit", "Limit of requests in flight, by kind; a kind without a limit has no value.")
	m.exportBounds(b.LongRunning, "request_kind",
		"portico_longrunning_requests", "Long-running requests that count towards the limits, by kind: discovery for streams of discovery, other for the rest.",
		"portico_longrunning_requests_limit", "Limit of long-running requests of all users, by kind; a kind without a limit has no value.")
	m.exportBounds(b.Connections, "kind",
		"portico_client_connections", "Connections of network clients, by kind: user for those on which a user is authenticated, stranger for the others.",
		"portico_client_connections_limit", "Limit of connections, by kind.")
	promauto.With(m.registry).NewCounterFunc(prometheus.CounterOpts{
		Name: "portico_client_connections_rejected_total", Help: "Connections that were closed because there were too many from their addresses.",
	}, func() float64 { return float64(b.Rejected()) })
}

func (m *Metrics) exportBounds(all map[string]Bound, label, inUse, inUseHelp, limit, limitHelp string) {
	gauge := func(name, help, kind string, value func() int) {
		promauto.With(m.registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: kind}},
			func() float64 { return float64(value()) })
	}
	for kind, b := range all {
		gauge(inUse, inUseHelp, kind, b.InUse)
		if b.Max() > 0 {
			gauge(limit, limitHelp, kind, b.Max)
		}
	}
}
