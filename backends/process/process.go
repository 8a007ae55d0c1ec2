// Package process is the common part of the core server and the CRD server: listeners,
// storage, trust in gateways, the client of the gateway, metrics and health.
//
// Runs in: core, crd.
package process

import (
	"log/slog"
	"net/http"
	"time"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/client"
	"portico/resource/etcd"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/serve/version"
	"portico/resource/tracing"
)

// streams is how many requests at a time one HTTP/2 connection of a gateway takes.
// Frames of a connection are read and written one after the other, at both ends: 300
// watches on one connection are sent two thirds of what they are sent on twenty. With
// more on each, thousands of watches still take few descriptors.
const streams = 16

// Config of a server behind a gateway. Files are read again when they change, unless
// stated otherwise.
type Config struct {
	// Listen is where the gateway connects. Required.
	Listen serve.ListenAddress
	// Etcd keeps everything. Required.
	Etcd etcd.Config
	// RequestHeaderCAFile has the CAs of the front proxy's certificate, whose CN must be
	// in RequestHeaderAllowedNames (empty: any). On a unix socket a peer of the same uid
	// is a front proxy.
	RequestHeaderCAFile       string
	RequestHeaderAllowedNames []string
	// Gateway serves the objects of other servers. With a zero URL nothing that needs
	// them runs.
	Gateway client.Gateway
	// ShutdownDelay is how long the server serves on after it stops being ready,
	// for the gateways that check it to send their requests to another one. Zero
	// means none.
	ShutdownDelay time.Duration
	// MaxInFlight and MaxMutatingInFlight bound the reads and writes at work; 0: the
	// defaults of serve.Config; below 0: no bound.
	MaxInFlight, MaxMutatingInFlight int
	// Profiling serves /debug/pprof.
	Profiling bool
	// Audit says which requests are audited, and where events go. Default: none
	// is. Files are read once.
	Audit audit.Options
	// TracingConfigFile is a TracingConfiguration as kube-apiserver reads it; "":
	// nothing is traced.
	TracingConfigFile string
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Complete fills in what was left out.
func (cfg *Config) Complete() {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.TracingConfigFile != "" {
		cfg.Etcd.Trace = tracing.Stored
	}
}

// Metrics makes what /metrics shows, upstream's engines included.
func (cfg *Config) Metrics() *metrics.Metrics {
	return metrics.New(append(cfg.Audit.Metrics(), admission.EngineMetrics()...)...)
}

// Agent is the name by which the process is a client of the gateway.
func Agent(name string) string { return "portico-" + name }

// Way returns the way to the gateway, for all that the process asks of it; nil
// if there is none.
func (cfg *Config) Way() (http.RoundTripper, error) {
	if cfg.Gateway.URL == "" {
		return nil, nil
	}
	return cfg.Gateway.Transport()
}

// Engine makes what asks admission webhooks and policies, and what those refer
// to, by the way to the gateway. What store returns is read there instead; nil:
// nothing is.
func (cfg *Config) Engine(name string, way http.RoundTripper, store func(*resource.Info) resource.Store, metrics *admission.Metrics) (*admission.Engine, error) {
	return admission.NewEngine(admission.EngineConfig{
		Store: store, BaseURL: cfg.Gateway.URL, Transport: way, UserAgent: Agent(name), Warn: filter.AddWarning,
		Logger: cfg.Logger, Metrics: metrics, Waited: filter.AddWait,
	})
}

// answerAhead is how much earlier than at the gateway the time of a request is up:
// what a busy machine takes to pass an answer on.
const answerAhead = time.Second

// Parts are what a process serves.
type Parts struct {
	// Name is "core" or "crd". Required, as is the rest.
	Name    string
	Health  *serve.Health
	Metrics *metrics.Metrics
	// Complete reports whether it is known what is served.
	Complete func() bool
	// Routes lead to what is served. Those that every process has are filled in.
	Routes serve.Routes
}

// Server makes the listener with its filters. It accepts requests of gateways only,
// which have authorized them.
func (cfg *Config) Server(p Parts) (*serve.Server, error) {
	authenticator, err := authn.FrontProxyOnly(cfg.RequestHeaderCAFile, cfg.RequestHeaderAllowedNames)
	if err != nil {
		return nil, err
	}
	tracer, err := tracing.Open(cfg.TracingConfigFile, tracing.Options{
		Service: Agent(p.Name), Instance: cfg.Listen.Address, Registry: p.Metrics.Registry(), Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	audited, err := audit.Open(cfg.Audit, cfg.Logger)
	if err != nil {
		return nil, err
	}
	listen, routes := cfg.Listen, p.Routes
	listen.MaxConcurrentStreams = streams
	routes.Health, routes.Metrics, routes.Version, routes.Profiling = p.Health, p.Metrics.Handler(), version.Handler(), cfg.Profiling
	chain, err := filter.New(filter.Config{
		Handler: serve.NewRouter(routes), Authenticator: authenticator, Complete: p.Complete,
		MaxInFlight: cfg.MaxInFlight, MaxMutatingInFlight: cfg.MaxMutatingInFlight, ManyUsers: true, Ahead: answerAhead,
		Metrics: p.Metrics, Audit: audited, Tracer: tracer, Logger: cfg.Logger.With("server", p.Name),
	})
	if err != nil {
		return nil, err
	}
	return serve.New(serve.Config{
		Name: p.Name, Listen: []serve.ListenAddress{listen}, Chain: chain, Health: p.Health,
		Certificates: cfg.certificates(), ShutdownDelay: cfg.ShutdownDelay, Logger: cfg.Logger,
	})
}

// certificates are the files of certificates that the process depends on, beside its
// serving certificate.
func (cfg *Config) certificates() []authn.CertificateFile {
	return []authn.CertificateFile{
		{Usage: "requestheader-client-ca", Path: cfg.RequestHeaderCAFile, CA: true},
		{Usage: "gateway-client", Path: cfg.Gateway.CertFile},
		{Usage: "gateway-ca", Path: cfg.Gateway.CAFile, CA: true},
		{Usage: "etcd-ca", Path: cfg.Etcd.CAFile, CA: true},
		{Usage: "etcd-client", Path: cfg.Etcd.CertFile},
	}
}
