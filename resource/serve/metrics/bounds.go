package metrics

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Bound is a limit and how much of it is in use. Max returns 0 if there is no limit.
// fairshare.Limit is one. Safe for concurrent use.
type Bound interface {
	InUse() int
	Max() int
}

// Bounds are the limits of a server, by the label of their kind.
type Bounds struct {
	// Requests has those in flight, by readOnly and mutating.
	Requests map[string]Bound
	// LongRunning has discovery for streams of discovery, and other for the rest.
	LongRunning map[string]Bound
	// Connections has user for those on which a user is authenticated, and stranger
	// for the others.
	Connections map[string]Bound
}

// bounds collects the gauges of Bounds.
type bounds struct {
	requests, longRunning, connections bound

	mu      sync.Mutex
	current Bounds
}

// bound describes the two gauges of one of Bounds.
type bound struct{ inUse, limit *prometheus.Desc }

func newBounds() *bounds {
	of := func(inUse, inUseHelp, limit, limitHelp, label string) bound {
		return bound{
			prometheus.NewDesc(inUse, inUseHelp, []string{label}, nil),
			prometheus.NewDesc(limit, limitHelp, []string{label}, nil),
		}
	}
	return &bounds{
		requests: of("apiserver_current_inflight_requests",
			"Requests in flight that count towards the limits, by kind: readOnly or mutating.",
			"portico_inflight_requests_limit", "Limit of requests in flight, by kind; a kind without a limit has no value.", "request_kind"),
		longRunning: of("portico_longrunning_requests",
			"Long-running requests that count towards the limits, by kind: discovery for streams of discovery, other for the rest.",
			"portico_longrunning_requests_limit",
			"Limit of long-running requests of all users, by kind; a kind without a limit has no value.", "request_kind"),
		connections: of("portico_client_connections",
			"Connections of network clients, by kind: user for those on which a user is authenticated, stranger for the others.",
			"portico_client_connections_limit", "Limit of connections, by kind.", "kind"),
	}
}

// SetBounds replaces the limits that are shown. A process has one server with limits;
// those of a second server replace those of the first.
func (b *bounds) SetBounds(current Bounds) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.current = current
}

// Describe implements prometheus.Collector.
func (b *bounds) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []bound{b.requests, b.longRunning, b.connections} {
		to <- one.inUse
		to <- one.limit
	}
}

// Collect implements prometheus.Collector.
func (b *bounds) Collect(to chan<- prometheus.Metric) {
	b.mu.Lock()
	current := b.current
	b.mu.Unlock()
	b.requests.collect(current.Requests, to)
	b.longRunning.collect(current.LongRunning, to)
	b.connections.collect(current.Connections, to)
}

func (b bound) collect(all map[string]Bound, to chan<- prometheus.Metric) {
	for kind, one := range all {
		to <- prometheus.MustNewConstMetric(b.inUse, prometheus.GaugeValue, float64(one.InUse()), kind)
		if limit := one.Max(); limit > 0 {
			to <- prometheus.MustNewConstMetric(b.limit, prometheus.GaugeValue, float64(limit), kind)
		}
	}
}
