package gateway

import (
	"context"
	"fmt"
	"slices"

	flowv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/gateway/access"
	"portico/gateway/accesslog"
	"portico/gateway/authentication"
	"portico/gateway/authorization"
	"portico/gateway/flow"
	gatewayopenapi "portico/gateway/openapi"
	"portico/gateway/proxy"
	"portico/gateway/registration"
	"portico/gateway/routing"
	"portico/resource"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/client"
	"portico/resource/encryption"
	"portico/resource/etcd"
	"portico/resource/identity"
	"portico/resource/loop"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/tracing"
	"portico/resource/watchcache"
)

func (g *Gateway) boundConnections() (err error) {
	g.connections, err = g.cfg.Connections.Limits()
	return err
}

func (g *Gateway) openStorage() (err error) {
	if g.cfg.TracingConfigFile != "" {
		g.cfg.Etcd.Trace = tracing.Stored
	}
	g.cfg.Encryption.Host = identity.Host()
	if g.encrypted, err = encryption.Open(g.cfg.Encryption); err != nil {
		return err
	}
	g.encrypted.Apply(&g.cfg.Etcd)
	g.etcd, err = etcd.Open(g.cfg.Etcd)
	return err
}

// readBackends makes the servers of the configuration.
func (g *Gateway) readBackends() error {
	if g.cfg.ProxyCertFile != "" {
		pair, err := authn.NewKeyPair(g.cfg.ProxyCertFile, g.cfg.ProxyKeyFile)
		if err != nil {
			return fmt.Errorf("load front-proxy certificate: %w", err)
		}
		g.trust.Certificate = pair.GetClientCertificate
	}
	own := g.trust
	own.Dial, g.trust.Dial = g.cfg.Egress.ControlPlane, g.cfg.Egress.Cluster
	for _, b := range g.cfg.Backends {
		c, err := routing.NewStaticBackend(b, own)
		if err != nil {
			return err
		}
		g.start = append(g.start, c)
	}
	return nil
}

// routes returns the routes as they are now. There are none before assembleSync.
func (g *Gateway) routes() *proxy.Table { return g.sync.Table() }

// closeAnonymous switches anonymous requests off if everything is allowed, as kube-apiserver does, unless the
// AuthenticationConfiguration has them.
func (g *Gateway) closeAnonymous() error {
	all, err := g.cfg.Authorization.AllowsAll()
	if all && g.cfg.Authentication.AnonymousAuth {
		g.log.Warn("anonymous requests are not allowed with the AlwaysAllow authorizer: they are off; use a different authorizer")
		g.cfg.Authentication.AnonymousAuth = false
	}
	return err
}

// assembleAccess makes authentication, authorization and flow control.
func (g *Gateway) assembleAccess() (err error) {
	g.core = newCoreClient(g.routes, func(svc, eps loop.Snapshot) { g.sync.SetServices(svc, eps) }, g.log)
	if err := g.closeAnonymous(); err != nil {
		return err
	}
	g.authn, err = authentication.New(g.cfg.Authentication, authentication.Dependencies{
		Account: g.core.lookupServiceAccount, Bound: g.core.lookupBound, Secret: g.core.lookupTokenSecret,
		BootstrapSecret: g.core.lookupBootstrapSecret, Host: identity.Host(), Registry: g.metrics.Registry(), Logger: g.log,
	})
	if err != nil {
		return err
	}
	g.core.tokens, g.core.bootstrap = g.authn.Accounts, g.cfg.Authentication.BootstrapTokens
	g.access = access.New(access.Config{
		Authenticator: g.authn, Audiences: g.cfg.Authentication.APIAudiences, Chain: func() authz.Engine { return g.authorizer }, Logger: g.log,
	})
	engines := authorization.Engines{RBAC: g.access, Node: g.nodeAuthorizer, Dial: utilnet.DialFunc(g.cfg.Egress.ControlPlane)}
	if g.authorizer, err = authorization.New(g.cfg.Authorization, engines, g.log); err != nil {
		return err
	}
	g.counts = &objectCounts{table: g.routes, own: g.metrics.Registry()}
	g.flow = flow.New(flow.Config{Seats: g.cfg.seats(), RequestTimeout: g.cfg.RequestTimeout, Stats: g.counts.Of, Logger: g.log})
	return nil
}

// ownKinds returns the kinds that the gateway serves, among them services and backends.
func (g *Gateway) ownKinds() (all []*rest.Kind, services, backends *rest.Kind, err error) {
	if services, err = apiservice.Kind(); err != nil {
		return nil, nil, nil, err
	}
	accessKinds, err := g.access.Kinds()
	if err != nil {
		return nil, nil, nil, err
	}
	flowKinds, err := g.flow.Kinds()
	if err != nil {
		return nil, nil, nil, err
	}
	if backends, err = g.backendKind(); err != nil {
		return nil, nil, nil, err
	}
	return slices.Concat([]*rest.Kind{services, backends}, accessKinds, flowKinds), services, backends, nil
}

// backendKind returns the kind Backend with its schema and the warning that depends on other
// Backends.
func (g *Gateway) backendKind() (*rest.Kind, error) {
	k, err := backend.Kind()
	if err != nil {
		return nil, err
	}
	k.Ownership = openapi.Ownership(k)
	warnings := k.Strategy.Warnings
	k.Strategy.Warnings = func(ctx context.Context, obj, old rest.Object) []string {
		return append(warnings(ctx, obj, old), g.sync.SharedService(obj.(*backend.Backend))...)
	}
	return k, nil
}

// assembleOwn makes the API of the groups that the gateway serves.
func (g *Gateway) assembleOwn() error {
	kinds, services, backends, err := g.ownKinds()
	if err != nil {
		return err
	}
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
	admission, err := g.assembleAdmission()
	if err != nil {
		return err
	}
	g.api = handlers.New(handlers.Config{
		Resources: list, CBOR: g.cfg.CBOR, Warn: filter.AddWarning, Metrics: g.metrics.Registry(), Logger: g.log, Authorize: g.authorize, Admission: admission,
	})
	g.metrics.Registry().MustRegister(g.cache.Metrics(g.infos), g.etcd.Metrics())
	g.kinds, g.own = kinds, discovery.FromKinds(kinds)
	g.apiservices, g.backends = g.find(services.GroupResource()), g.find(backends.GroupResource())
	return nil
}

// assembleSync makes routing, OpenAPI, registration and the publisher of trust.
func (g *Gateway) assembleSync() error {
	wakeAll := func() { g.registration.Wake() }
	g.sync = routing.New(routing.Config{
		Own: g.own, StaticBackends: g.start, Trust: g.trust, Via: g.via, Lasting: g.connections.Users, Grace: g.cfg.Grace,
		Changed: func() { g.documents.IndexChanged(); wakeAll() }, EndpointChanged: func() { g.registration.WakeStatus() }, Logger: g.log,
	})
	g.documents = gatewayopenapi.New(gatewayopenapi.Config{
		Own: g.kinds, Index: g.sync.OpenAPI, Table: g.sync.Table, Verdict: g.sync.Verdict, Issuer: g.authn.Issuer != nil,
		CBOR: g.cfg.CBOR, BrokenChanged: wakeAll, Registry: g.metrics.Registry(), Logger: g.log,
	})
	g.registration = registration.New(registration.Config{
		Findings: g.sync, APIServices: g.apiservices, Backends: g.backends, Own: g.own, StaticBackends: g.start,
		Broken: g.documents.BrokenOf, Observer: g.cfg.InstanceID, Registry: g.metrics.Registry(), Logger: g.log,
	})
	g.publisher = &publisher{
		core: g.core, clientCAFile: g.cfg.Authentication.ClientCAFile, proxyCAFile: g.cfg.Authentication.RequestHeader.CAFile,
		proxyNames: g.cfg.Authentication.RequestHeader.AllowedNames, log: g.log,
	}
	return nil
}

// assembleLastGood makes what is kept for a restart while etcd is away.
func (g *Gateway) assembleLastGood() error {
	l := &lastGood{
		log: g.log, sync: g.sync, core: g.core, access: g.access, flow: g.flow, admission: g.admission.engine, find: g.find, services: g.apiservices, backends: g.backends,
		ownReady: g.cache.Ready,
	}
	for gr, r := range g.resources {
		if r.Kind.Review == nil && slices.Contains([]string{apiservice.Group, backend.Group, rbacv1.GroupName, flowv1.GroupName}, gr.Group) {
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

// find returns one of the gateway's own resources; nil if it is another.
func (g *Gateway) find(gr schema.GroupResource) *rest.Resource { return g.resources[gr] }

// assembleObservation makes the access log, audit and tracing.
func (g *Gateway) assembleObservation() (err error) {
	registry := g.metrics.Registry()
	registry.MustRegister(g.sync.Metrics()...)
	if g.cfg.AccessLog != "" {
		log, err := accesslog.Open(accesslog.Config{Path: g.cfg.AccessLog, Registry: registry, Logger: g.log})
		if err != nil {
			return err
		}
		g.accessLog = log
	}
	if g.audit, err = audit.Open(g.cfg.Audit, g.log); err != nil {
		return err
	}
	g.tracer, err = tracing.Open(g.cfg.TracingConfigFile, tracing.Options{
		Service: "portico-gateway", Instance: g.cfg.InstanceID, Registry: registry, Logger: g.log,
	})
	return err
}

// assembleServer makes the filters, the listener and the health checks.
func (g *Gateway) assembleServer() (err error) {
	g.addHealthChecks()
	control, err := g.flow.Open(g.find)
	if err != nil {
		return err
	}
	g.proxy = proxy.New(proxy.Config{Table: g.sync.Table, Authorizer: g.authorizer, Traced: g.tracer != nil, Logged: g.accessLog != nil})
	router := g.router()
	g.core.own = client.InProcess(router, gatewayUser())
	chain, err := filter.New(filter.Config{
		Handler: router, Refuse: g.refuseLoop, Authenticator: g.authn, IdentityHeaders: g.cfg.Authentication.IdentityHeaders(), Authorizer: g.authorizer, Impersonation: g.access.Impersonation,
		Complete: g.complete, LongRunning: g.proxy.Streams, RequestTimeout: g.cfg.RequestTimeout, GoawayChance: g.cfg.GoawayChance,
		FlowControl: control, SentOn: g.sentOn, MaxInFlight: g.cfg.MaxInFlight, MaxMutatingInFlight: g.cfg.MaxMutatingInFlight, Connections: g.connections, Browser: g.cfg.Browser,
		MaxLongRunning: g.cfg.MaxLongRunning, MaxLongRunningPerUser: g.cfg.MaxLongRunningPerUser,
		Metrics: g.metrics, AccessLog: g.accessLog, Audit: g.audit, Tracer: g.tracer, TrustsTrace: filter.TrustedTracers,
		Logger: g.log.With("server", "gateway"),
	})
	if err != nil {
		return err
	}
	listen := slices.Clone(g.cfg.Listen)
	for i := range listen {
		listen[i].ClientCAs = g.authn.ClientCAs
	}
	g.server, err = serve.New(serve.Config{
		Name: "gateway", Listen: listen, Probe: g.cfg.ProbeListen, Answers: g.answers, Chain: chain, Health: g.health,
		Certificates: g.cfg.certificates(), ShutdownDelay: g.cfg.ShutdownDelay, Logger: g.log,
	})
	return err
}

// sentOn reports whether a request is for a registered server: the limits of its Backend apply.
func (g *Gateway) sentOn(a *resource.Action) bool {
	if !a.IsResource {
		return false
	}
	rt := g.sync.Table().Lookup(a.Group, a.Version)
	return rt != nil && !rt.Local && !rt.Static
}

// infos returns the resources that the gateway stores.
func (g *Gateway) infos() []*resource.Info {
	var out []*resource.Info
	for _, r := range g.resources {
		if r.Store != nil {
			out = append(out, &r.Info)
		}
	}
	return out
}
