package crd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/backends/process"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/authz"
	"portico/resource/client"
	"portico/resource/etcd"
	"portico/resource/loop"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/watchcache"
)

// peersTimeout bounds reading the other definitions for a check of names.
const peersTimeout = 3 * time.Second

// name is what the process is called in metrics, traces and requests.
const name = "crd"

// Config of a Server. Without a gateway, nothing can be created in a namespace.
type Config struct{ process.Config }

// storage is what keeps the objects: etcd, or memory in tests.
type storage interface {
	Store(info *resource.Info) resource.Store
}

// Server is one CRD server. Make it with New, then Run it once.
type Server struct {
	cfg         Config
	log         *slog.Logger
	etcd        *etcd.Client
	cache       *watchcache.Cache
	bodies      *bodies
	scale       *rest.Kind // of every scale subresource
	schemas     *schemas
	definitions *rest.Resource
	// early reads the definitions before the cache is there.
	early      resource.Store
	served     atomic.Pointer[served]
	namespaces *admission.NamespaceStates
	api        *handlers.API
	documents  *discovery.Current
	// omitted is how many group/versions are not in discovery.
	omitted   atomic.Int64
	openAPI   *openapi.Documents
	health    *serve.Health
	metrics   *metrics.Metrics
	asked     *admission.Metrics // of admission; nil: it is not timed
	server    *serve.Server
	finalizer *finalizer
	// engine asks admission webhooks and policies; nil: there is no gateway to
	// read them from.
	engine *admission.Engine
	// authorize asks the gateway about what it has not authorized yet.
	authorize func(ctx context.Context, a *resource.Action) error
}

// New assembles a CRD server; it neither connects nor listens.
func New(cfg Config) (*Server, error) {
	cfg.Complete()
	metrics := cfg.Metrics()
	asked := admission.NewMetrics(metrics.Registry())
	gateway, engine, err := cfg.gateway(asked)
	if err != nil {
		return nil, fmt.Errorf("assemble CRD server: %w", err)
	}
	opened, err := etcd.Open(cfg.Etcd)
	if err != nil {
		return nil, fmt.Errorf("assemble CRD server: %w", err)
	}
	s := &Server{
		cfg: cfg, log: cfg.Logger, etcd: opened, metrics: metrics, asked: asked,
		namespaces: admission.NewNamespaceStates(admission.NamespacesOver(gateway), cfg.Logger), engine: engine, authorize: consent(gateway),
	}
	s.assemble(opened, opened.FeedExcept(builtinPaths()...))
	s.metrics.Registry().MustRegister(opened.Metrics())
	if err := s.assembleServer(); err != nil {
		return nil, errors.Join(fmt.Errorf("assemble CRD server: %w", err), opened.Close())
	}
	return s, nil
}

// assemble makes everything that serves resources over a storage.
func (s *Server) assemble(kept storage, feed resource.Feed) {
	s.cache = watchcache.New(watchcache.Config{Feed: feed, Store: kept.Store, Logger: s.log})
	s.bodies, s.schemas = newBodies(), newSchemas(defaultSchemaBytes)
	s.scale, s.health = rest.ScaleKind(), serve.NewHealth()
	s.documents, s.openAPI = &discovery.Current{}, openapi.New(openapi.Config{Logger: s.log})
	k := newDefinitionKind(s.peers, s.totals)
	s.definitions, s.early = &rest.Resource{Kind: k, Store: s.cache.Store(&k.Info)}, s.cache.Early(&k.Info)
	s.metrics.Registry().MustRegister(s.cache.Metrics(s.infos))
	s.metrics.Registry().MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portico_crd_discovery_dropped_group_versions",
		Help: "Group/versions of definitions that discovery leaves out because all together are beyond its bounds.",
	}, func() float64 { return float64(s.omitted.Load()) }))
	s.finalizer = newFinalizer(s)
	s.api = handlers.New(handlers.Config{
		Lookup: s.lookup, Warn: filter.AddWarning, Metrics: s.metrics.Registry(), Logger: s.log, Authorize: s.authorize,
		Admission: s.asked.Timed(admission.Chain(
			&lifecycle{s}, admission.NamespaceLifecycle(admission.LifecycleConfig{Lookup: s.namespaces.Lookup, Metrics: s.asked}), s.engine)),
	})
}

// consent asks the gateway, or refuses where there is none.
func consent(gateway *client.Client) func(context.Context, *resource.Action) error {
	var asked authz.Doer
	if gateway != nil {
		asked = gateway
	}
	return func(ctx context.Context, a *resource.Action) error { return authz.Ask(ctx, asked, a) }
}

// gateway returns a client of the gateway and what asks the webhooks and
// policies known to it, timed by the metrics; nil if there is none.
func (cfg *Config) gateway(metrics *admission.Metrics) (*client.Client, *admission.Engine, error) {
	way, err := cfg.Way()
	if way == nil {
		return nil, nil, err
	}
	engine, err := cfg.Engine(name, way, nil, metrics)
	return client.New(client.Config{BaseURL: cfg.Gateway.URL, Transport: way, UserAgent: process.Agent(name)}), engine, err
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
			Index:     s.paths,
		},
	})
	return err
}

// resources serves what the API does. A watch ends when its definition is
// served no more, or differently: what it would send on might be of a schema
// that the client does not know.
func (s *Server) resources() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ActionFrom(r.Context())
		if act == nil || act.Verb != "watch" {
			s.api.ServeHTTP(w, r)
			return
		}
		v := s.servingOf(act)
		if v == nil {
			s.api.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(v.ended, cancel)()
		s.api.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (s *Server) addHealthChecks() {
	s.health.AddStorage(s.etcd.Healthy)
	s.health.AddReady("informer-sync", func(*http.Request) error {
		if !s.cache.Ready() {
			return errors.New("not all resources are followed yet")
		}
		return nil
	})
	s.health.AddReady("poststarthook/crd-informer-synced", func(*http.Request) error {
		if s.served.Load() == nil {
			return errors.New("the definitions have not been read yet")
		}
		return nil
	})
	s.health.AddAside(serve.WritesCheck, func(*http.Request) error {
		if s.engine == nil {
			return nil
		}
		return errors.Join(s.engine.Ready(), s.namespaces.Ready())
	})
}

// complete reports whether it is known what is served.
func (s *Server) complete() bool { return s.served.Load() != nil }

// paths are the paths of discovery, for the index.
func (s *Server) paths() []string {
	if d := s.documents.Load(); d != nil {
		return d.Paths()
	}
	return nil
}

// Listen binds the listening address, so that an address in use is known
// before anything else starts. Run does it if it was not done.
func (s *Server) Listen() error { return s.server.Listen() }

// Run serves until ctx ends, then drains, and returns when everything it
// started has ended. It ends by itself if a part of it does.
func (s *Server) Run(ctx context.Context) error {
	defer s.etcd.Close()
	return s.server.RunWith(ctx, s.runParts)
}

// runParts runs everything but the server until ctx ends or one of them fails.
func (s *Server) runParts(ctx context.Context) error {
	host, _ := os.Hostname()
	id := fmt.Sprintf("%s_%d", host, os.Getpid())
	parts := []func(context.Context) error{
		s.cache.Run, s.follow, s.namespaces.Run,
		func(ctx context.Context) error { return s.etcd.Campaign(ctx, "crd", id, s.finalizer.run) },
	}
	if s.engine != nil {
		parts = append(parts, s.engine.Run)
	}
	return loop.Together(ctx, parts...)
}

// follow keeps the snapshot of what is served, and what is made of it. It does
// not wait for the cache: with a gigabyte of objects that takes many seconds, in
// which they can be served from etcd.
func (s *Server) follow(ctx context.Context) error {
	return loop.Follow(ctx, s.early, loop.FollowOptions{Logger: s.log, Window: -1}, func(state loop.Snapshot) {
		old := s.served.Load()
		now, gone := s.next(old, state.Items)
		s.served.Store(now)
		for _, v := range gone {
			v.end()
			s.schemas.forget(v)
		}
		s.publish(now)
		s.finalizer.wake.Set()
	})
}
