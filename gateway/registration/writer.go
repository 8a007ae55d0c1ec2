// Package registration stores what package gateway/routing finds: the automanaged
// APIServices and static Backends, the condition Available of APIServices, and the status of
// Backends.
//
//   - register.go stores automanaged APIServices; claims.go decides which Backend each
//     belongs to. staticbackends.go stores the Backends that the gateway starts with.
//   - writer.go runs the writers, and has the condition Available of APIServices, also as
//     upstream's metrics.
//   - statuswriter.go writes the status of Backends; status.go computes it, and
//     statusconditions.go its conditions.
//
// It runs apart from routing, so that a slow etcd delays no route, and writes differences
// only. The elected one of several gateways on one etcd writes; the others create missing
// objects once. Of the gateway's packages it imports routing only.
//
// Runs in: gateway.
package registration

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/loop"
	"portico/resource/rest"
)

// Findings are the states of APIServices, Backends and their servers, as in
// *routing.Controller.
type Findings interface {
	// Listed returns the stored APIServices; ok is false before they were read.
	Listed() (list []*apireg.APIService, ok bool)
	// Conditions returns the condition Available of every APIService, and BackendStates the
	// state of every Backend; nil before they are computed.
	Conditions() map[string]apiservice.Condition
	BackendStates() *routing.BackendStates
	// DiscoveryVerdict is the verdict on reading the discovery of a server.
	DiscoveryVerdict(srv *routing.Server) availability.Verdict
	// Current reports whether the verdicts on a server are those of its present checks.
	Current(srv *routing.Server) bool
}

// Config of a Writer.
type Config struct {
	Findings Findings
	// APIServices and Backends are written to.
	APIServices, Backends *rest.Resource
	// Own are the group/versions that the gateway serves itself.
	Own []discovery.GroupVersion
	// StaticBackends are the Backends that the gateway starts with.
	StaticBackends []*routing.StaticBackend
	// Broken returns the OpenAPI documents of a server that cannot be used.
	Broken func(*routing.Server) []openapi.Broken
	// Observer names this gateway in conditions.
	Observer string
	// Registry gets upstream's metrics of APIServices. Required.
	Registry prometheus.Registerer
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Writer writes APIServices and Backends. Safe for concurrent use.
type Writer struct {
	registrar *registrar
	status    *statusWriter
}

// New makes a Writer, which is not elected. It writes nothing before Run.
func New(cfg Config) *Writer {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	r := &registrar{
		found: cfg.Findings, services: cfg.APIServices, backends: cfg.Backends, own: cfg.Own, static: cfg.StaticBackends,
		log: cfg.Logger, metrics: newAvailabilityMetrics(cfg.Registry), observer: cfg.Observer,
		messages: writeLimit{pause: messagePause, burst: 1},
	}
	w := &statusWriter{
		found: cfg.Findings, backends: cfg.Backends, leadership: &r.leadership, results: &r.results,
		broken: cfg.Broken, log: cfg.Logger, observer: cfg.Observer,
		changes: writeLimit{pause: statusPause, burst: statusBurst}, messages: writeLimit{pause: messagePause, burst: 1},
	}
	r.resultsChanged = &w.wake
	return &Writer{registrar: r, status: w}
}

// Run writes until ctx ends. It compares when it is woken, and after a failure or a delay.
func (r *Writer) Run(ctx context.Context) error {
	return loop.Together(ctx, r.registrar.run, r.status.run)
}

// Wake announces that any finding may have changed.
func (r *Writer) Wake() {
	r.registrar.wake.Set()
	r.status.wake.Set()
}

// Autoregistered reports whether the APIServices that were missing have been stored since the start. It never becomes
// false again. Safe for concurrent use.
func (r *Writer) Autoregistered() bool { return r.registrar.autoregistered.Load() }

// WakeStatus announces that the state of an endpoint may have changed.
func (r *Writer) WakeStatus() { r.status.wake.Set() }

// Elect makes this gateway the elected one until term ends. It does not block. Writes of the
// elected gateway are made under term, so that none is carried out after another gateway is
// elected (package resource/etcd).
func (r *Writer) Elect(term context.Context) {
	r.registrar.leadership.set(term)
	r.Wake()
}

// leadership is whether this gateway is the elected one. Safe for concurrent use; the zero
// value is not elected.
type leadership struct {
	latest atomic.Pointer[context.Context]
}

func (l *leadership) set(term context.Context) { l.latest.Store(&term) }

// term returns the context of writes of the elected gateway; elected is false if this is
// another gateway.
func (l *leadership) term() (term context.Context, elected bool) {
	if latest := l.latest.Load(); latest != nil && (*latest).Err() == nil {
		return *latest, true
	}
	return nil, false
}

// writeConditions writes the conditions that differ from the stored ones. It returns when a
// delayed message may be written; 0: none is delayed.
func (g *registrar) writeConditions(ctx context.Context, stored map[string]*apireg.APIService, known map[string]apiservice.Condition) (again time.Duration, err error) {
	now := time.Now()
	g.messages.forget(now)
	var differ []string
	for name, want := range known {
		a := stored[name]
		if a == nil {
			continue
		}
		have, ok := apiservice.Current(a)
		if ok && have.Agrees(want) {
			continue
		}
		if ok && have.Status == want.Status && have.Reason == want.Reason {
			if wait := g.messages.wait(name, now); wait > 0 {
				again = sooner(again, wait)
				continue
			}
			g.messages.spend(name, now)
		}
		differ = append(differ, name)
	}
	return again, each(differ, func(name string) error { return g.setCondition(ctx, name, known[name]) })
}

// sooner returns the shorter wait; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// setCondition writes the condition of an APIService, if it still exists.
func (g *registrar) setCondition(ctx context.Context, name string, want apiservice.Condition) error {
	_, err := rest.Modify(ctx, g.services, resource.Key{Name: name}, func(a *apireg.APIService) error {
		if have, ok := apiservice.Current(a); !ok || !have.Agrees(want) {
			apiservice.Set(a, want.ObservedBy(g.observer), time.Now())
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write condition of APIService %q: %w", name, err)
	}
	return nil
}

// availabilityMetrics are upstream's metrics of APIServices (docs/wire.md 1.6). Of the
// registrar's goroutine only.
type availabilityMetrics struct {
	unavailable *prometheus.GaugeVec
	total       *prometheus.CounterVec
	last        map[string]apiservice.Condition
}

func newAvailabilityMetrics(registry prometheus.Registerer) *availabilityMetrics {
	m := &availabilityMetrics{
		unavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aggregator_unavailable_apiservice",
			Help: "Whether an APIService is unavailable (1) or not (0).",
		}, []string{"name"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_unavailable_apiservice_total",
			Help: "How often an APIService became unavailable, by the reason of its condition.",
		}, []string{"name", "reason"}),
	}
	registry.MustRegister(m.unavailable, m.total)
	return m
}

// set updates the metrics to the conditions of all APIServices, and deletes the gauges of
// others.
func (m *availabilityMetrics) set(conditions map[string]apiservice.Condition) {
	for name := range m.last {
		if _, ok := conditions[name]; !ok {
			m.unavailable.DeleteLabelValues(name)
		}
	}
	for name, c := range conditions {
		before, seen := m.last[name]
		if seen && before == c {
			continue
		}
		if c.Available() {
			m.unavailable.WithLabelValues(name).Set(0)
			continue
		}
		m.unavailable.WithLabelValues(name).Set(1)
		if !seen || before.Available() || before.Reason != c.Reason {
			reason := c.Reason
			if reason == "" {
				reason = "UnknownReason"
			}
			m.total.WithLabelValues(name, reason).Inc()
		}
	}
	m.last = conditions
}
