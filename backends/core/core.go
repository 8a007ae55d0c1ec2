// Package core is the core server: the built-in kinds (package kinds), kept in
// etcd, and their controllers. To the gateway, which authenticates and authorizes, it is
// a backend like any other; it accepts the front-proxy identity only.
//
// Its controllers create the system namespaces, the default service account and root
// certificate of each namespace and Service default/kubernetes, drain deleted namespaces
// and repair the claims of addresses and ports of services. Objects of other servers in a deleted
// namespace are deleted through the gateway; the server starts without it.
//
// Runs in: core.
package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/kubernetes/pkg/capabilities"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/backends/core/controllers"
	"portico/backends/core/garbage"
	"portico/backends/core/kinds"
	"portico/backends/core/kubelet"
	"portico/backends/core/plugins"
	"portico/backends/core/pods"
	"portico/backends/core/services"
	"portico/backends/process"
	"portico/discovery"
	"portico/discovery/openapi"
	"portico/resource"
	"portico/resource/admission"
	"portico/resource/authn"
	"portico/resource/encryption"
	"portico/resource/etcd"
	"portico/resource/metastream"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/watchcache"
)

// name is the name of the process in metrics, traces and requests.
const name = "core"

// Config of a Core. Files are reloaded when they change, unless stated otherwise.
type Config struct {
	process.Config
	// ServiceAccountIssuers are the issuers of service account tokens, of which the first is
	// the iss of new ones, and ServiceAccountSigningKeyFile signs them. Empty: the token
	// subresource is not served.
	ServiceAccountIssuers        []string
	ServiceAccountSigningKeyFile string
	// APIAudiences are the audiences of tokens that name none. Default: the
	// issuers.
	APIAudiences []string
	// ExtendTokenExpiration lets tokens of pods for extendedFrom live for extendedTo.
	ExtendTokenExpiration bool
	// MaxTokenExpiration is the longest lifetime of a token; requests for more get this.
	// Between 1 h and 2^32 s. Default: 365 days.
	MaxTokenExpiration time.Duration
	// RootCAFile is published in every namespace as ConfigMap kube-root-ca.crt; "": none.
	RootCAFile string
	// ServiceClusterIPRanges are the CIDRs of the addresses of services: one, or one of each
	// family, the primary one first. Default: 10.96.0.0/16.
	ServiceClusterIPRanges []string
	// ServiceNodePortRange is the range of node ports. Default: 30000-32767.
	ServiceNodePortRange string
	// RuntimeConfig switches group/versions and resources on and off, as --runtime-config of
	// kube-apiserver: api/all, api/ga, api/beta, api/alpha, GROUP/VERSION or
	// GROUP/VERSION/RESOURCE, each with =true or =false.
	RuntimeConfig []string
	// EventTTL is how long events are kept. Default: 1 h.
	EventTTL time.Duration
	// AllowPrivileged permits privileged containers; the flag's default is true. The setting is one of
	// the process: the first Core decides.
	AllowPrivileged bool
	// Admission has the flags of admission plugins.
	Admission plugins.Options
	// AdvertiseAddress is the IP address and port of a gateway that does not publish its own,
	// an endpoint of Service default/kubernetes while this server runs; "": none.
	AdvertiseAddress string
	// Kubelet says how the nodes and pods of streams and proxies are reached.
	Kubelet kubelet.Config
	// Controllers selects the controllers to run, as --controllers of
	// kube-controller-manager. Default: *.
	Controllers []string
	// ControllerOptions are the settings of single controllers.
	ControllerOptions controllers.Options
}

// storage keeps the objects: etcd, or memory in tests.
type storage interface {
	Store(info *resource.Info) resource.Store
	Feed(ranges ...string) resource.Feed
}

// Core is one core server. Make it with New, then Run it once.
type Core struct {
	cfg       Config
	log       *slog.Logger
	etcd      *etcd.Client
	encrypted *encryption.Encryption
	storage   storage
	cache     *watchcache.Cache
	kinds     []*rest.Kind // that are stored
	served    []*rest.Kind // those of them, and their versions, that are switched on
	resources map[schema.GroupResource]*rest.Resource
	api       *handlers.API
	services  *services.Services
	health    *serve.Health
	metrics   *metrics.Metrics
	server    *serve.Server
	system    *systemNamespaces
	drain     *drainer
	selection controllers.Selection
	garbage   *garbage.Metrics
	shard     *shard // nil: this server has the namespaces
	// signer signs tokens of service accounts; nil: there are none.
	signer *authn.Signer
	// transport is for requests to the gateway; nil: there is none.
	transport http.RoundTripper
	// mapper finds the kinds of all servers; nil without a gateway.
	mapper meta.RESTMapper
	// engine calls admission webhooks and policies; nil without a gateway, through which
	// their parameters and Services are read.
	engine *admission.Engine
	// authorize asks the gateway about actions that it has not authorized.
	authorize func(context.Context, *resource.Action) error
	// stopped is closed when Run returns.
	stopped chan struct{}
	// started records which parts of the start have succeeded.
	started struct{ namespaces, kubernetesService, priorityClasses, legacyTokenTracking, repair atomic.Bool }
}

// New assembles a core server; it neither connects nor listens.
func New(cfg Config) (*Core, error) {
	cfg.Complete()
	cfg.completeServices()
	if len(cfg.APIAudiences) == 0 {
		cfg.APIAudiences = cfg.ServiceAccountIssuers
	}
	opened, encrypted, err := cfg.OpenStorage()
	if err != nil {
		return nil, fmt.Errorf("assemble core server: %w", err)
	}
	c := &Core{cfg: cfg, log: cfg.Logger, etcd: opened, encrypted: encrypted, storage: opened, health: serve.NewHealth(), stopped: make(chan struct{})}
	for _, step := range []func() error{c.assembleKinds, c.assembleControllers, c.assembleServer} {
		if err := step(); err != nil {
			encrypted.Close()
			return nil, errors.Join(fmt.Errorf("assemble core server: %w", err), opened.Close())
		}
	}
	c.metrics.Registry().MustRegister(opened.Metrics())
	return c, nil
}

// assembleKinds makes the parts that serve resources.
func (c *Core) assembleKinds() error {
	if err := c.assembleServices(); err != nil {
		return err
	}
	// c.authorize is set later.
	authorize := func(ctx context.Context, a *resource.Action) error { return c.authorize(ctx, a) }
	cfg, err := c.kindsConfig(authorize)
	if err != nil {
		return err
	}
	c.kinds = kinds.All(cfg)
	if c.served, err = servedKinds(c.kinds, c.cfg.RuntimeConfig); err != nil {
		return fmt.Errorf("--runtime-config: %w", err)
	}
	c.openStores()
	list := make([]*rest.Resource, len(c.served))
	for i, k := range c.served {
		list[i] = &rest.Resource{Kind: k, Store: c.find(k.Group, k.Resource).Store}
	}
	c.metrics = c.cfg.Metrics()
	c.garbage = garbage.NewMetrics()
	c.metrics.Registry().MustRegister(c.cache.Metrics(c.infos), c.garbage, c.services.Metrics())
	if err := errors.Join(c.assembleEngine(), c.assembleShard()); err != nil {
		return err
	}
	admitted, err := c.assemblePlugins(authorize)
	if err != nil {
		return err
	}
	c.api = handlers.New(handlers.Config{
		Resources: list, CBOR: c.cfg.CBOR, Warn: filter.AddWarning, Metrics: c.metrics.Registry(), Logger: c.log, Authorize: authorize, Admission: admission.Timed(admitted),
	})
	return nil
}

// kindsConfig returns what the kinds use of this server.
func (c *Core) kindsConfig(authorize func(context.Context, *resource.Action) error) (kinds.Config, error) {
	capabilities.Setup(c.cfg.AllowPrivileged, 0) // of the strategies of pods
	actions := &pods.Actions{Find: c.find, Delete: func(ctx context.Context, r *rest.Resource, key resource.Key, opts *metav1.DeleteOptions) error {
		return c.api.DeleteAs(ctx, r, key, opts)
	}}
	streams := c.cfg.Kubelet
	streams.Dial = c.cfg.Egress.Cluster
	streams.Find = c.find
	connector, err := kubelet.New(streams)
	if err != nil {
		return kinds.Config{}, err
	}
	cfg := kinds.Config{
		Connections: connector.Subresources, BindPod: actions.Bind, EvictPod: actions.Evict,
		AllocateService: c.services.Allocate, ServiceFamilies: c.services.Families(), NamespaceLabel: c.namespaceLabel,
		NamespaceWarnings: c.namespaceWarnings, EventTTL: c.cfg.EventTTL, Warn: filter.AddWarning,
		Permissions: kinds.Permissions{Authorize: authorize, ResourceOf: c.resourceOf, Get: c.read},
	}
	if c.cfg.ServiceAccountSigningKeyFile == "" {
		return cfg, nil
	}
	var issuer string // NewSigner refuses none
	if len(c.cfg.ServiceAccountIssuers) > 0 {
		issuer = c.cfg.ServiceAccountIssuers[0]
	}
	if c.signer, err = authn.NewSigner(c.cfg.ServiceAccountSigningKeyFile, issuer); err != nil {
		return cfg, fmt.Errorf("load service account signing key: %w", err)
	}
	longest, err := c.cfg.maxTokenExpiration()
	if err != nil {
		return cfg, err
	}
	t := &tokens{
		signer: c.signer, audiences: c.cfg.APIAudiences, longest: int64(longest / time.Second), extends: c.cfg.ExtendTokenExpiration, find: c.find, now: time.Now,
	}
	cfg.CreateToken = t.create
	return cfg, nil
}

// openStores makes the cache and the resources of all kinds.
func (c *Core) openStores() {
	var ranges []string
	for _, k := range c.kinds {
		if r := k.RangePath(""); !k.Virtual() && !slices.Contains(ranges, r) {
			ranges = append(ranges, r)
		}
	}
	c.cache = watchcache.New(watchcache.Config{Feed: c.storage.Feed(ranges...), Store: c.storage.Store, Logger: c.log})
	c.resources = map[schema.GroupResource]*rest.Resource{}
	for _, k := range c.kinds {
		r := &rest.Resource{Kind: k}
		if !k.Virtual() {
			r.Store = c.cache.Store(&k.Info)
		}
		if k.Computed {
			r.Store = c.newComponentStatuses(k)
		}
		if k.Group == "" && k.Resource == "services" {
			r.Store = c.services.Store(r.Store)
		}
		c.resources[k.GroupResource()] = r
	}
}

// assembleEngine makes the engine of admission webhooks and policies. Their configurations
// are stored here; the objects that they refer to are read through the gateway.
func (c *Core) assembleEngine() (err error) {
	if c.transport, err = c.cfg.GatewayTransport(); c.transport == nil {
		return err
	}
	c.cfg.AdmissionConfigFile = c.cfg.Admission.ConfigFile
	c.engine, err = c.cfg.Engine(name, c.transport, func(i *resource.Info) (resource.Store, rest.Codec) {
		if r := c.find(i.Group, i.Resource); r != nil && c.serves(r.GVR(r.Versions[0])) {
			return c.cache.Early(&r.Info), r.Codec // before the cache is filled: writes wait for the engine
		}
		return nil, nil
	})
	return err
}

// early is find for plugins: lists do not wait until the cache is filled.
func (c *Core) early(group, res string) *rest.Resource {
	if c.shard != nil && group == "" && res == "namespaces" {
		return c.namespaces()
	}
	r := c.find(group, res)
	if r == nil || r.Virtual() || group == "" && res == "services" { // its store allocates addresses
		return r
	}
	return &rest.Resource{Kind: r.Kind, Store: c.cache.Early(&r.Info)}
}

// assemblePlugins makes the admission plugins, those of the engine included.
func (c *Core) assemblePlugins(authorize func(context.Context, *resource.Action) error) (rest.Admission, error) {
	cfg := plugins.Config{
		Options: c.cfg.Admission, Resource: c.early, Authorize: authorize, Warn: filter.AddWarning, Namespace: c.lookupNamespace, Engine: c.engine,
		Stop: c.stopped,
	}
	if c.shard != nil {
		cfg.Quotas = c.shard.quotas
	}
	if c.transport != nil {
		var err error
		if c.mapper, err = controllers.NewMapper(c.clientConfig()); err != nil {
			return nil, err
		}
		cfg.Mapper = c.mapper
	}
	return plugins.New(cfg)
}

// infos returns the resources that are served and stored.
func (c *Core) infos() []*resource.Info {
	var out []*resource.Info
	for _, k := range c.kinds {
		if !k.Virtual() {
			out = append(out, &k.Info)
		}
	}
	return out
}

func (c *Core) find(group, res string) *rest.Resource {
	return c.resources[schema.GroupResource{Group: group, Resource: res}]
}

// lookupNamespace returns the state of a namespace for admission; with live it is read from
// etcd.
func (c *Core) lookupNamespace(ctx context.Context, name string, live bool) (admission.NamespaceState, error) {
	if c.shard != nil {
		return c.shard.namespaces.Lookup(ctx, name, live)
	}
	at := resource.At{Freshness: resource.Any}
	if live {
		at = resource.At{}
	}
	o, err := c.find("", "namespaces").Store.Get(ctx, resource.Key{Name: name}, at)
	if apierrors.IsNotFound(err) {
		return admission.NamespaceState{}, nil
	}
	if err != nil {
		return admission.NamespaceState{}, err
	}
	return admission.NamespaceState{Exists: true, Terminating: o.Terminating()}, nil
}

// assembleServer makes the listener with its filters and health checks.
func (c *Core) assembleServer() error {
	documents, err := discovery.Build(discovery.FromKinds(c.served), c.cfg.AdvertiseAddress)
	if err != nil {
		return err
	}
	c.addHealthChecks()
	c.server, err = c.cfg.Server(process.Parts{
		Name: name, Health: c.health, Metrics: c.metrics, Complete: c.cache.Ready,
		Certificates: []authn.CertificateFile{
			{Usage: "kubelet-client", Path: c.cfg.Kubelet.ClientCertFile},
			{Usage: "kubelet-ca", Path: c.cfg.Kubelet.CAFile, CA: true},
		},
		Routes: serve.Routes{
			Resources: c.api,
			Discovery: discovery.NewHandler(discovery.Fixed(documents)),
			OpenAPI:   openapi.FromKinds(openapi.Config{CBOR: c.cfg.CBOR, Logger: c.log}, c.served).Handler(),
			Metadata:  metastream.Handler(c.cache),
			Index:     documents.Paths,
		},
	})
	return err
}

// Health returns the health checks of the server.
func (c *Core) Health() *serve.Health { return c.health }

// Listen binds the listening address, so that an address in use is an error before anything
// else starts. Run calls it if it was not called.
func (c *Core) Listen() error { return c.server.Listen() }

// Run serves until ctx ends or a part of the server fails, then drains, and returns when
// everything that it started has ended.
func (c *Core) Run(ctx context.Context) error {
	defer c.encrypted.Close()
	defer c.etcd.Close()
	defer close(c.stopped)
	return c.server.RunWith(ctx, c.runParts)
}
