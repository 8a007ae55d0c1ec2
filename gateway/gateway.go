package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/discovery"
	"portico/gateway/access"
	"portico/gateway/authentication"
	"portico/gateway/authorization"
	"portico/gateway/authorization/node"
	"portico/gateway/flow"
	"portico/gateway/openapi"
	"portico/gateway/proxy"
	"portico/gateway/registration"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/resource/admission"
	"portico/resource/audit"
	"portico/resource/egress"
	"portico/resource/encryption"
	"portico/resource/etcd"
	"portico/resource/fairshare"
	"portico/resource/identity"
	"portico/resource/loop"
	"portico/resource/masterlease"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/inflight"
	"portico/resource/serve/metrics"
	"portico/resource/serve/version"
	"portico/resource/tracing"
	"portico/resource/watchcache"
)

// Gateway is one gateway process. Make it with New, then Run it once.
type Gateway struct {
	cfg Config
	log *slog.Logger

	// Storage, and the groups that the gateway serves.
	etcd      *etcd.Client
	encrypted *encryption.Encryption
	cache     *watchcache.Cache
	kinds     []*rest.Kind
	own       []discovery.GroupVersion // of kinds
	resources map[schema.GroupResource]*rest.Resource
	// apiservices and backends are two of the resources.
	apiservices, backends *rest.Resource
	api                   *handlers.API

	// Authentication, authorization and admission.
	authn  *authentication.Authentication
	logs   *os.Root // of /logs/; nil: it is not served
	access *access.Access
	// authorizer is the chain of authorizers, access among them.
	authorizer *authorization.Authorizer
	nodes      *node.Authorizer // part of authorizer; nil: kubelets have no authorization of their own
	flow       *flow.Flow
	counts     *objectCounts
	// admission decides on writes of the gateway's own kinds.
	admission *ownAdmission

	// Servers behind the gateway: those of the configuration, the client certificate for all
	// of them, routes, proxy, OpenAPI and registration.
	start        []*routing.StaticBackend
	trust        upstream.Trust
	via          *upstream.Via
	sync         *routing.Controller
	proxy        *proxy.Proxy
	documents    *openapi.Documents
	registration *registration.Writer
	core         *coreClient
	publisher    *publisher
	lastGood     *lastGood

	// Observation, and the listener.
	health    *serve.Health
	metrics   *metrics.Metrics
	accessLog filter.RequestLog // nil: none
	audit     *audit.Auditor    // nil: nothing is audited
	tracer    *tracing.Tracer   // nil: nothing is traced
	server    *serve.Server
	// serverChecks are the post-start checks of the core and the CRD server.
	serverChecks []*serverCheck
	// connections limits those of clients, together with long-lived ones to servers.
	connections inflight.ConnectionLimits
}

// New assembles a gateway. It reads the files of the configuration, and neither connects
// nor listens.
func New(cfg Config) (*Gateway, error) {
	cfg.complete()
	shared := slices.Concat(cfg.Audit.Metrics(), admission.EngineMetrics(), authentication.Metrics(), authorization.Metrics(), flow.EngineMetrics(), cfg.Encryption.Metrics(), egress.Metrics)
	g := &Gateway{
		cfg: cfg, log: cfg.Logger, health: serve.NewHealth(), metrics: metrics.New(shared...), via: upstream.NewVia(),
	}
	for _, step := range []func() error{
		g.boundConnections, g.openStorage, g.openLogs, g.readBackends, g.assembleAccess, g.assembleOwn, g.assembleSync, g.assembleLastGood, g.assembleObservation, g.assembleServer,
	} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("assemble gateway: %w", err)
		}
	}
	return g, nil
}

// Health returns the health checks of the gateway.
func (g *Gateway) Health() *serve.Health { return g.health }

// InFlight returns the limits of reads and of writes in flight without PriorityAndFairness. They
// may be set while it runs.
func (g *Gateway) InFlight() (reads, writes *fairshare.Limit) { return g.server.InFlight() }

// Listen binds the listening address, so that an address in use is known before anything
// else starts. Run calls it if it was not called.
func (g *Gateway) Listen() error { return g.server.Listen() }

// Run serves until ctx ends, drains, and returns when everything it started has ended. It
// ends if one of its parts does.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.encrypted.Close()
	defer g.etcd.Close()
	if err := g.server.Listen(); err != nil {
		return err
	}
	for _, address := range slices.Backward(g.server.Addresses()) {
		if address.Network() == "tcp" {
			g.sync.SetAddress(address.String())
		}
	}
	return g.server.RunWith(ctx, func(ctx context.Context) error {
		return loop.Together(ctx,
			g.cache.Run,
			g.encrypted.Run,
			g.sync.Check,
			g.sync.Run,
			g.registration.Run,
			g.lastGood.Run,
			g.campaign,
			g.followServerChecks,
			g.authn.Run,
			g.core.run,
			g.admission.engine.Run,
			g.admission.namespaces.Run,
			g.publisher.run,
			g.documents.Run,
			func(ctx context.Context) error {
				return g.sync.Follow(ctx, g.apiservices, g.backends, g.lastGood.Await)
			},
			func(ctx context.Context) error { return g.access.Run(ctx, g.find) },
			func(ctx context.Context) error { return g.authorizer.Run(ctx, identity.Host()) },
			g.followNodes,
			func(ctx context.Context) error { return g.flow.Run(ctx, g.find) },
			g.countObjects,
			func(ctx context.Context) error { return g.etcd.Compact(ctx, g.cfg.InstanceID) },
			func(ctx context.Context) error { return g.etcd.RecordVersion(ctx, "gateway", version.Version()) },
			g.advertise,
			g.identify,
		)
	})
}

// countObjects reads object counts for priority and fairness, if it is on, until ctx ends.
func (g *Gateway) countObjects(ctx context.Context) error {
	if !g.cfg.PriorityAndFairness {
		<-ctx.Done()
		return ctx.Err()
	}
	return g.counts.run(ctx)
}

// advertise publishes the address of the gateway until ctx ends.
func (g *Gateway) advertise(ctx context.Context) error {
	if addr, ok := masterlease.Parse(g.cfg.AdvertiseAddress); ok {
		return masterlease.New(g.etcd.Store).Keep(ctx, addr, g.log)
	}
	<-ctx.Done()
	return ctx.Err()
}

// identify keeps the Lease of the gateway until ctx ends.
func (g *Gateway) identify(ctx context.Context) error {
	return identity.Open(g.etcd.Store).Keep(ctx, identity.New("gateway", g.cfg.InstanceID, g.server.Addresses()), g.log)
}

// complete reports whether all paths are installed.
func (g *Gateway) complete() bool {
	return g.cache.Ready() && g.sync.Ready() && g.access.Ready() == nil
}

// answers reports whether requests can be answered: by the state of etcd, or by the local copy
// of an earlier one while etcd is away.
func (g *Gateway) answers() bool {
	return g.complete() || g.lastGood.local.Load() && g.sync.Ready()
}

// writerElection is the name of the election of the gateway that writes.
const writerElection = "gateway"

// campaign takes part in the election until ctx ends. The elected gateway writes the
// conditions of APIServices, the status of Backends and the last-good documents; every
// gateway routes by its own observations. Its writes are bound to its term: a gateway that
// was suspended does not write after another was elected.
func (g *Gateway) campaign(ctx context.Context) error {
	return g.etcd.Campaign(ctx, writerElection, g.cfg.InstanceID, func(term context.Context) {
		g.registration.Elect(term)
		g.lastGood.KeepEtcd(term)
	})
}
