package crd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/backends/crd/custom"
	"portico/backends/process"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/admission/quota"
	"portico/resource/client"
	"portico/resource/encryption"
	"portico/resource/etcd"
	"portico/resource/loop"
	"portico/resource/metastream"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/serve/version"
	"portico/resource/watchcache"
)

// peersTimeout bounds listing the other definitions to check names.
const peersTimeout = 3 * time.Second

// name is the name of the process in metrics, traces and requests.
const name = "crd"

// Config of a Server. Without a gateway nothing can be created in a namespace.
type Config struct{ process.Config }

// storage keeps the objects: etcd, or memory in tests.
type storage interface {
	Store(info *resource.Info) resource.Store
}

// Server is one CRD server. Make it with New, then Run it once.
type Server struct {
	cfg         Config
	log         *slog.Logger
	etcd        *etcd.Client
	encrypted   *encryption.Encryption
	cache       *watchcache.Cache
	kinds       *custom.Kinds
	definitions *rest.Resource
	// shown are definitions for clients: changes are answered once all servers and gateways show them.
	shown       *rest.Resource
	established *establisher
	claims      *claims
	// early reads the definitions, also while the cache is being filled.
	early      resource.Store
	served     atomic.Pointer[served]
	namespaces *admission.NamespaceStates
	// quotas are those of the core server; nil: there is no gateway to read them from.
	quotas    *quota.Remote
	api       *handlers.API
	documents *discovery.Current
	// openAPIState is the state of openAPI that documents has. Only follow uses it.
	openAPIState string
	// omitted is the number of group/versions that are not in discovery.
	omitted   atomic.Int64
	openAPI   *openapi.Documents
	health    *serve.Health
	metrics   *metrics.Metrics
	server    *serve.Server
	finalizer *finalizer
	// engine calls admission webhooks and policies; nil: there is no gateway to read them
	// from.
	engine *admission.Engine
	// authorize asks the gateway about actions that it has not authorized.
	authorize func(ctx context.Context, a *resource.Action) error
	// stopped is closed when Run returns.
	stopped chan struct{}
}

// New assembles a CRD server; it neither connects nor listens.
func New(cfg Config) (*Server, error) {
	cfg.Complete()
	metrics := cfg.Metrics(custom.Metrics()...)
	gateway, engine, err := cfg.gateway()
	if err != nil {
		return nil, fmt.Errorf("assemble CRD server: %w", err)
	}
	opened, encrypted, err := cfg.OpenStorage()
	if err != nil {
		return nil, fmt.Errorf("assemble CRD server: %w", err)
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, etcd: opened, encrypted: encrypted, metrics: metrics, engine: engine,
		namespaces: admission.NewNamespaceStates(admission.NamespacesOver(gateway), cfg.Logger), authorize: process.Authorize(gateway),
		stopped: make(chan struct{}),
	}
	if gateway != nil {
		s.quotas = quota.NewRemote(gateway, cfg.Logger)
	}
	s.metrics.Registry().MustRegister(opened.Metrics())
	err = s.assemble(opened, opened.FeedExcept(builtinPaths()...))
	if err == nil {
		err = s.assembleServer()
	}
	if err != nil {
		encrypted.Close()
		return nil, errors.Join(fmt.Errorf("assemble CRD server: %w", err), opened.Close())
	}
	return s, nil
}

// assemble makes the parts that serve resources from a storage.
func (s *Server) assemble(kept storage, feed resource.Feed) (err error) {
	s.cache = watchcache.New(watchcache.Config{Feed: feed, Store: kept.Store, Logger: s.log})
	if s.kinds, err = custom.NewKinds(s.webhookClients()); err != nil {
		return err
	}
	s.health = serve.NewHealth()
	s.documents, s.openAPI = &discovery.Current{}, openapi.New(openapi.Config{CBOR: s.cfg.CBOR, Logger: s.log})
	s.claims = newClaims()
	k := newDefinitionKind(s.peers, s.totals, s.claims)
	s.definitions, s.early = &rest.Resource{Kind: k, Store: s.cache.Store(&k.Info)}, s.cache.Early(&k.Info)
	s.established = newEstablisher(s)
	s.documents.Followers = s.established.followers
	s.shown = &rest.Resource{Kind: k, Store: &shownStore{s.definitions.Store, s.established}}
	s.metrics.Registry().MustRegister(s.cache.Metrics(s.infos))
	s.metrics.Registry().MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portico_crd_discovery_dropped_group_versions",
		Help: "Group/versions of definitions that discovery omits because all together exceed its bounds.",
	}, func() float64 { return float64(s.omitted.Load()) }))
	s.metrics.SetExists(func(group, resource string) bool {
		return group == s.definitions.Group || s.definitionOf(group, resource) != nil
	})
	s.finalizer = newFinalizer(s)
	s.api = handlers.New(handlers.Config{
		Lookup: s.lookup, CBOR: s.cfg.CBOR, Warn: filter.AddWarning, Metrics: s.metrics.Registry(), Logger: s.log, Authorize: s.authorize,
		Admission: admission.Timed(admission.Chain(s.plugins()...)),
	})
	return nil
}

// webhookClients returns what calls conversion webhooks as admission webhooks are called.
func (s *Server) webhookClients() custom.WebhookClients {
	return custom.WebhookClients{Services: s.engine.Services(), Clients: admission.WebhookClients(s.cfg.Egress)}
}

// plugins returns the admission plugins in kube-apiserver's order.
func (s *Server) plugins() []rest.Admission {
	list := []rest.Admission{&lifecycle{s}, admission.NamespaceLifecycle(s.namespaces.Lookup), s.engine}
	if s.quotas != nil {
		list = append(list, quota.New(quota.Config{Quotas: s.quotas, Stop: s.stopped}))
	}
	return list
}

// gateway returns a client of the gateway and the engine of the webhooks and policies that
// the gateway serves; nil if there is no gateway.
func (cfg *Config) gateway() (*client.Client, *admission.Engine, error) {
	transport, err := cfg.GatewayTransport()
	if transport == nil {
		return nil, nil, err
	}
	engine, err := cfg.Engine(name, transport, nil)
	return client.New(client.Config{BaseURL: cfg.Gateway.URL, Transport: transport, UserAgent: process.UserAgent(name)}), engine, err
}

// assembleServer makes the listener with its filters and health checks.
func (s *Server) assembleServer() (err error) {
	s.addHealthChecks()
	s.server, err = s.cfg.Server(process.Parts{
		Name: name, Health: s.health, Metrics: s.metrics, Complete: s.complete,
		Routes: serve.Routes{
			Resources: s.resources(),
			Discovery: discovery.NewHandler(s.documents),
			OpenAPI:   s.openAPI.Handler(),
			Metadata:  metastream.Handler(s.cache),
			Index:     s.paths,
		},
	})
	return err
}

// resources serves the API. A watch ends when its definition is no longer served, or served in a way
// that it cannot continue (watches).
func (s *Server) resources() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ActionFrom(r.Context())
		if act == nil || !act.Mutating() && act.Verb != "watch" {
			s.api.ServeHTTP(w, r)
			return
		}
		switch d := s.definitionOf(act.Group, act.Resource); {
		case d == nil:
		case act.Verb != "watch":
			r = r.WithContext(s.unlessDeleted(r.Context(), d, act.Name))
		case d.watches[act.Version] != nil:
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(d.watches[act.Version].ended, cancel)()
			r = r.WithContext(ctx)
		}
		s.api.ServeHTTP(w, r)
	})
}

func (s *Server) addHealthChecks() {
	s.health.AddStorage(s.etcd.Healthy)
	s.encrypted.AddChecks(s.health.AddAside)
	s.health.AddInformerSync(s.cache.Ready)
	s.health.AddPostStartCheck("poststarthook/crd-informer-synced", serve.Until(s.complete, "the definitions have not been read yet"))
	s.health.AddPostStartCheck("poststarthook/start-apiextensions-informers",
		serve.Until(s.cache.Ready, "the definitions and their objects have not been read yet"))
	s.health.AddPostStartCheck("poststarthook/start-apiextensions-controllers",
		serve.Until(func() bool { return s.documents.Load() != nil }, "discovery has not been published yet"))
	s.health.AddAside(serve.WritesCheck, func(*http.Request) error {
		return errors.Join(s.engine.Ready(), s.namespaces.Ready(), s.quotas.Ready())
	})
}

// complete reports whether the definitions have been read.
func (s *Server) complete() bool { return s.served.Load() != nil }

// paths returns the paths of discovery, for the index.
func (s *Server) paths() []string {
	if d := s.documents.Load(); d != nil {
		return d.Paths()
	}
	return nil
}

// Health returns the health checks of the server.
func (s *Server) Health() *serve.Health { return s.health }

// Listen binds the listening address, so that an address in use is an error before anything
// else starts. Run calls it if it was not called.
func (s *Server) Listen() error { return s.server.Listen() }

// Run serves until ctx ends or a part of the server fails, then drains, and returns when
// everything that it started has ended.
func (s *Server) Run(ctx context.Context) error {
	defer s.encrypted.Close()
	defer s.etcd.Close()
	defer close(s.stopped)
	return s.server.RunWith(ctx, s.runParts)
}

// runParts runs everything but the listener until ctx ends or a part fails.
func (s *Server) runParts(ctx context.Context) error {
	parts := []func(context.Context) error{
		s.cache.Run, s.encrypted.Run, s.follow, s.established.run, s.namespaces.Run, s.engine.Run,
		func(ctx context.Context) error {
			return s.etcd.Campaign(ctx, "crd", process.Instance(), s.finalizer.run)
		},
		func(ctx context.Context) error { return s.cfg.Identify(ctx, s.etcd, name, s.server) },
		func(ctx context.Context) error { return s.etcd.RecordVersion(ctx, name, version.Version()) },
	}
	if s.quotas != nil {
		parts = append(parts, s.quotas.Run)
	}
	return loop.Together(ctx, parts...)
}

// follow rebuilds the snapshot of what is served with every change of a definition. It
// starts before the cache is filled, which takes seconds with a gigabyte of objects; until
// then objects are served from etcd, and changes of definitions wait.
func (s *Server) follow(ctx context.Context) error {
	return loop.Follow(ctx, s.early, loop.FollowOptions{Logger: s.log, Window: -1}, func(state loop.Snapshot) {
		old := s.served.Load()
		removed := s.removed(old, state.Items)
		// Before the next definition of the same name has a store.
		for _, info := range removed {
			s.cache.Forget(info)
		}
		now, gone := s.next(old, state.Items)
		s.served.Store(now)
		for _, v := range gone {
			endWatches(v, now)
			s.kinds.Forget(v.outline)
		}
		s.forgetMetrics(removed)
		s.publish(now)
		s.established.published(s.documents.Serial(), state.Revision)
		s.finalizer.wake.Set()
	})
}

// builtinPaths returns the storage path prefixes of other servers: those of the built-in
// kinds (k8s.io/kubernetes pkg/controlplane/storageversionhashdata lists them), including
// kinds that Portico does not serve, as kube-apiserver may have written the storage; and
// Portico's own. None of them can hold a custom resource: the paths of those begin with the
// name of a group, which contains a dot.
func builtinPaths() []string {
	paths := []string{
		"apiregistration.k8s.io", "gateway.portico.dev", "portico",
		"certificatesigningrequests", "clusterrolebindings", "clusterroles", "clustertrustbundles", "configmaps",
		"controllerrevisions", "controllers", "cronjobs", "csidrivers", "csinodes", "csistoragecapacities",
		"daemonsets", "deployments", "deviceclasses", "devicetaintrules", "endpointslices", "events", "flowschemas",
		"horizontalpodautoscalers", "ingress", "ingressclasses", "ipaddresses", "jobs", "leasecandidates", "leases",
		"limitranges", "masterleases", "minions", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings",
		"mutatingwebhookconfigurations", "namespaces", "networkpolicies", "persistentvolumeclaims",
		"persistentvolumes", "podcertificaterequests", "poddisruptionbudgets", "pods", "podtemplates",
		"priorityclasses", "prioritylevelconfigurations", "ranges", "replicasets", "resourceclaims",
		"resourceclaimtemplates", "resourcequotas", "resourceslices", "rolebindings", "roles", "runtimeclasses",
		"secrets", "serviceaccounts", "servicecidrs", "services", "statefulsets", "storageclasses",
		"storageversionmigrations", "storageversions", "validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "validatingwebhookconfigurations", "volumeattachments",
		"volumeattributesclasses", "workloads",
	}
	for i := range paths {
		paths[i] += "/"
	}
	slices.Sort(paths)
	return paths
}
