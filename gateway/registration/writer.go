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

// Findings are what was found out of APIServices, Backends and their servers.
// *routing.Controller has them.
type Findings interface {
	// Listed returns the APIServices as of the last news from etcd; ok is false before
	// any.
	Listed() (list []*apireg.APIService, ok bool)
	// Conditions returns the condition Available of every APIService, nil before it is
	// known, and BackendStates how each Backend stands, nil likewise.
	Conditions() map[string]apiservice.Condition
	BackendStates() *routing.BackendStates
	// DiscoveryVerdict is what is known of reading a server's discovery.
	DiscoveryVerdict(srv *routing.Server) availability.Verdict
	// Settled reports whether what is known of a server was found out as it is asked now.
	Settled(srv *routing.Server) bool
}

// Config of a Writer.
type Config struct {
	Findings Findings
	// APIServices and Backends are what is written.
	APIServices, Backends *rest.Resource
	// Own are the group/versions that the gateway serves itself, Configured the
	// servers that it starts with.
	Own            []discovery.GroupVersion
	StaticBackends []*routing.StaticBackend
	// Broken returns the OpenAPI documents of a server that are known to be broken.
	Broken func(*routing.Server) []openapi.Broken
	// Observer names this gateway in conditions.
	Observer string
	// Registry gets upstream's metrics of APIServices. Required.
	Registry prometheus.Registerer
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Writer writes what was found out to APIServices and Backends. It looks when it is
// woken, and by itself only at what failed or was held back. Safe for concurrent use.
type Writer struct {
	registrar *registrar
	status    *statusWriter
}

// New makes a Writer, which is not elected. Nothing is written before Run.
func New(cfg Config) *Writer {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	r := &registrar{
		found: cfg.Findings, services: cfg.APIServices, backends: cfg.Backends, own: cfg.Own, configured: cfg.StaticBackends,
		log: cfg.Logger, metrics: newAvailabilityMetrics(cfg.Registry), observer: cfg.Observer,
	}
	w := &statusWriter{
		found: cfg.Findings, backends: cfg.Backends, leadership: &r.leadership, results: &r.results,
		broken: cfg.Broken, log: cfg.Logger, observer: cfg.Observer,
	}
	r.status = &w.wake
	return &Writer{registrar: r, status: w}
}

// Run writes until ctx ends.
func (r *Writer) Run(ctx context.Context) error {
	return loop.Together(ctx, r.registrar.run, r.status.run)
}

// Wake says that anything may be otherwise than before.
func (r *Writer) Wake() {
	r.registrar.wake.Set()
	r.status.wake.Set()
}

// WakeStatus says that only the states of endpoints may.
func (r *Writer) WakeStatus() { r.status.wake.Set() }

// Elect makes this gateway the one that writes, of those on one etcd, until term
// ends. It does not wait. What only that one may write is written under term, so that
// it is not carried out once another is elected (package resource/etcd).
func (r *Writer) Elect(term context.Context) {
	r.registrar.leadership.take(term)
	r.Wake()
}

// leadership is whether this gateway is the elected one. Safe for concurrent use; the
// zero value is not elected.
type leadership struct {
	latest atomic.Pointer[context.Context]
}

func (o *leadership) take(term context.Context) { o.latest.Store(&term) }

// term returns the context under which the elected gateway writes; elected is false
// if this is none.
func (o *leadership) term() (term context.Context, elected bool) {
	if latest := o.latest.Load(); latest != nil && (*latest).Err() == nil {
		return *latest, true
	}
	return nil, false
}
