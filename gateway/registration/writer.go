// Package registration stores what package gateway/routing finds: the automanaged
// APIServices and static Backends, the condition Available of APIServices, and the status of
// Backends.
//
//   - register.go stores automanaged APIServices; claims.go decides which Backend each
//     belongs to. staticbackends.go stores the Backends that the gateway starts with, and
//     conditions.go the condition Available, also as upstream's metrics.
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
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/apiservice/availability"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/gateway/routing"
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
