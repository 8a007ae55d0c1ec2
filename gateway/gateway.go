package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/gateway/access"
	"portico/gateway/apidocs"
	"portico/gateway/flow"
	"portico/gateway/lastgood"
	"portico/gateway/proxy"
	"portico/gateway/registration"
	"portico/gateway/routing"
	"portico/gateway/upstream"
	"portico/resource/accesslog"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/etcd"
	"portico/resource/loop"
	"portico/resource/rest"
	"portico/resource/serve"
	"portico/resource/tracing"
	"portico/resource/watchcache"
)

// maxFollowPause bounds the wait between attempts to reach the core server: its
// return is noticed within that time.
const maxFollowPause = 250 * time.Millisecond

// Gateway is one gateway process. Make it with New, then Run it once.
type Gateway struct {
	cfg    Config
	log    *slog.Logger
	etcd   *etcd.Client
	cache  *watchcache.Cache
	authn  authn.Authenticator
	access *access.Access
	flow   *flow.Flow
	sync   *routing.Sync
	core   *coreClient

	// start are the servers that the gateway starts with, and trust has the
	// certificate that is shown to all.
	start []*routing.Configured
	trust upstream.Trust
	// kinds are those that the gateway serves itself, and own their group/versions.
	kinds     []*rest.Kind
	own       []discovery.GroupVersion
	resources map[schema.GroupResource]*rest.Resource
	// apiservices and backends are two of them.
	apiservices, backends *rest.Resource
	api                   *rest.API
	documents             *apidocs.Documents
	issuer                http.Handler
	health                *serve.Health
	metrics               *serve.Metrics
	registration          *registration.Writer
	lastGood              *lastGood
	publisher             *publisher
	accessLog             *accesslog.Log  // nil: none is written
	audit                 *audit.Auditor  // nil: nothing is audited
	tracer                *tracing.Tracer // nil: nothing is traced
	proxy                 *proxy.Proxy
	server                *serve.Server
}

// New assembles a gateway. It reads the files of the configuration but neither
// connects to anything nor listens.
func New(cfg Config) (*Gateway, error) {
	cfg.complete()
	g := &Gateway{cfg: cfg, log: cfg.Logger, health: serve.NewHealth(), metrics: serve.NewMetrics(cfg.Audit.Metrics()...)}
	for _, step := range []func() error{g.openStorage, g.readBackends, g.assembleOwn, g.assembleSync, g.assembleLastGood, g.assembleObservation, g.assembleServer} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("assemble gateway: %w", err)
		}
	}
	return g, nil
}

func (g *Gateway) openStorage() (err error) {
	if g.cfg.TracingConfigFile != "" {
		g.cfg.Etcd.Trace = tracing.Stored
	}
	g.etcd, err = etcd.Open(g.cfg.Etcd)
	return err
}

// readBackends reads how the servers that the gateway starts with are reached.
func (g *Gateway) readBackends() error {
	if g.cfg.ProxyCertFile != "" {
		pair, err := authn.NewKeyPair(g.cfg.ProxyCertFile, g.cfg.ProxyKeyFile)
		if err != nil {
			return fmt.Errorf("load front-proxy certificate: %w", err)
		}
		g.trust.Certificate = pair.GetClientCertificate
	}
	for _, b := range g.cfg.Backends {
		c, err := routing.NewConfigured(b, g.trust)
		if err != nil {
			return err
		}
		g.start = append(g.start, c)
	}
	return nil
}

// assembleOwn makes the groups the gateway serves itself.
func (g *Gateway) assembleOwn() error {
	g.core = newCoreClient(func() *proxy.Table { return g.sync.Table() }, func(svc, eps loop.Snapshot) { g.sync.SetServices(svc, eps) }, g.log)
	authenticator, err := g.authenticator()
	if err != nil {
		return err
	}
	g.authn = authenticator
	g.access = access.New(access.Config{Authenticator: authenticator, Audiences: g.cfg.APIAudiences, Logger: g.log})
	g.flow = flow.New(flow.Config{Logger: g.log})
	services, err := apiservice.Kind()
	if err != nil {
		return err
	}
	accessKinds, err := g.access.Kinds()
	if err != nil {
		return err
	}
	flowKinds, err := g.flow.Kinds()
	if err != nil {
		return err
	}
	backends, err := backend.Kind()
	if err != nil {
		return err
	}
	backends.Ownership = openapi.Ownership(backends)
	kinds := append([]*rest.Kind{services, backends}, accessKinds...)
	kinds = append(kinds, flowKinds...)

	var ranges []string
	for _, k := range kinds {
		if k.Review == nil {
			ranges = append(ranges, k.RangePath(""))
		}
	}
	g.cache = watchcache.New(watchcache.Config{Feed: g.etcd.Feed(ranges...), Store: g.etcd.Store, Logger: g.log})
	g.resources = map[schema.GroupResource]*rest.Resource{}
	list := make([]*rest.Resource, 0, len(kinds))
	for _, k := range kinds {
		r := &rest.Resource{Kind: k}
		if k.Review == nil {
			r.Store = g.cache.Store(&k.Info)
		}
		g.resources[k.GroupResource()] = r
		list = append(list, r)
	}
	g.api = rest.New(rest.Config{
		Resources: list, Warn: serve.AddWarning, Metrics: g.metrics.Registry(), Logger: g.log, Authorize: g.authorize,
	})
	g.metrics.Registry().MustRegister(g.cache.Metrics(g.infos), g.etcd.Metrics())
	g.kinds, g.own = kinds, discovery.FromKinds(kinds)
	g.apiservices, g.backends = g.find(services.GroupResource()), g.find(backends.GroupResource())
	return nil
}

// assembleSync makes what follows the servers behind the gateway, and what shows and
// writes what is found.
func (g *Gateway) assembleSync() error {
	wakeAll := func() { g.registration.Wake() }
	g.sync = routing.New(routing.Config{
		Own: g.own, Configured: g.start, Trust: g.trust, Address: g.cfg.Listen.Address, Grace: g.cfg.Grace,
		Changed: wakeAll, Noticed: func() { g.registration.WakeStatus() }, Logger: g.log,
	})
	folder, err := lastgood.NewFolder(lastgood.FolderConfig{StateDir: g.cfg.StateDir, Named: g.sync.NamedOpenAPI, Logger: g.log})
	if err != nil {
		return err
	}
	g.documents = apidocs.New(apidocs.Config{
		Own: g.kinds, Index: g.sync.OpenAPI, Table: g.sync.Table, Verdict: g.sync.Verdict, Folder: folder,
		BrokenChanged: wakeAll, Registry: g.metrics.Registry(), Logger: g.log,
	})
	g.registration = registration.New(registration.Config{
		Findings: g.sync, APIServices: g.apiservices, Backends: g.backends, Own: g.own, Configured: g.start,
		Broken: g.documents.BrokenOf, Observer: g.cfg.InstanceID, Registry: g.metrics.Registry(), Logger: g.log,
	})
	g.publisher = &publisher{
		core: g.core, clientCAFile: g.cfg.ClientCAFile, proxyCAFile: g.cfg.RequestHeaderCAFile,
		proxyNames: g.cfg.RequestHeaderAllowedNames, log: g.log,
	}
	return nil
}

// assembleLastGood makes what outlives the gateway.
func (g *Gateway) assembleLastGood() error {
	l := &lastGood{
		log: g.log, sync: g.sync, core: g.core, access: g.access, find: g.find, services: g.apiservices, backends: g.backends,
		ownReady: g.cache.Ready,
	}
	for gr, r := range g.resources {
		if r.Kind.Review == nil && (gr.Group == apiservice.Group || gr.Group == backend.Group || gr.Group == rbacv1.GroupName) {
			l.own = append(l.own, r)
		}
	}
	if err := l.keep(g.etcd.Documents("gateway"), g.cfg.StateDir); err != nil {
		return err
	}
	g.lastGood = l
	registerLastGood(g.metrics.Registry(), l.Restored)
	return nil
}

// find returns one of the gateway's own resources; nil if it is none.
func (g *Gateway) find(gr schema.GroupResource) *rest.Resource { return g.resources[gr] }

// assembleServer makes the listener with its filters and health checks.
func (g *Gateway) assembleServer() (err error) {
	g.addHealthChecks()
	g.server, err = serve.New(serve.Config{
		Name: "gateway", Listen: []serve.ListenAddress{g.cfg.Listen}, Handler: g.router(),
		Authenticator: g.authn, Authorizer: g.access, Impersonation: g.access.Impersonation,
		Health: g.health, Metrics: g.metrics, Logger: g.log, RequestTimeout: g.cfg.RequestTimeout,
		ShutdownDelay: g.cfg.ShutdownDelay, GoawayChance: g.cfg.GoawayChance, Complete: g.complete, LongRunning: g.proxy.Streams,
		AccessLog: g.accessLog, Audit: g.audit, Tracer: g.tracer, TrustsTrace: serve.TrustedTracers,
	})
	return err
}

// complete reports whether every path there is has been installed.
func (g *Gateway) complete() bool {
	return g.cache.Ready() && g.sync.Ready() && g.access.Ready() == nil
}

func (g *Gateway) addHealthChecks() {
	notReady := func(ok func() bool, text string) func(*http.Request) error {
		return func(*http.Request) error {
			if ok() {
				return nil
			}
			return errors.New(text)
		}
	}
	g.health.AddStorage(g.etcd.Healthy)
	g.health.AddReady("informer-sync", notReady(g.cache.Ready, "not all resources are followed yet"))
	g.health.AddReady("poststarthook/rbac/bootstrap-roles", func(*http.Request) error { return g.access.Ready() })
	g.health.AddReady("poststarthook/apiservice-registration-controller", notReady(g.sync.Ready, "no route table yet"))
	g.health.AddReady("poststarthook/apiservice-discovery-controller", notReady(g.sync.Ready, "no discovery documents yet"))
	g.health.AddReady("autoregister-completion", notReady(g.registered, "not all APIServices of the gateway are registered yet"))
}

// registered reports whether every group of the gateway itself has its
// APIService. Those of backends do not count: the gateway does not wait for
// them.
func (g *Gateway) registered() bool {
	t := g.sync.Table()
	for _, gv := range g.own {
		if t.Lookup(gv.Group, gv.Version) == nil {
			return false
		}
	}
	return true
}

// Listen binds the listening address, so that an address in use is known
// before anything else starts. Run does it if it was not done.
func (g *Gateway) Listen() error { return g.server.Listen() }

// Run serves until ctx ends, then drains, and returns when everything it
// started has ended. It ends by itself if a part of it does.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.etcd.Close()
	if err := g.server.Listen(); err != nil {
		return err
	}
	if addresses := g.server.Addresses(); len(addresses) > 0 {
		g.sync.SetAddress(addresses[0].String())
	}
	return g.server.RunWith(ctx, func(ctx context.Context) error {
		return loop.Together(ctx,
			g.cache.Run,
			g.sync.Check,
			g.sync.Run,
			g.registration.Run,
			g.lastGood.Run,
			g.campaign,
			g.core.run,
			g.publisher.run,
			g.documents.Run,
			g.followAPIServices,
			g.followBackends,
			func(ctx context.Context) error { return g.access.Run(ctx, g.find) },
			func(ctx context.Context) error { return g.flow.Run(ctx, g.find) },
			g.etcd.Compact,
		)
	})
}
