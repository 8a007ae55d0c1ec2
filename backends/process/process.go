// Package process is the common part of the core server and the CRD server: configuration,
// the listener with its filters, trust in gateways, the client of the gateway, and tasks
// that are repeated until they succeed.
//
// Runs in: core, crd.
package process

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/authz"
	"portico/resource/client"
	"portico/resource/egress"
	"portico/resource/encryption"
	"portico/resource/etcd"
	"portico/resource/identity"
	"portico/resource/rest"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/inflight"
	"portico/resource/serve/metrics"
	"portico/resource/serve/version"
	"portico/resource/tracing"
)

// DefaultMaxStreams is the number of concurrent requests on one HTTP/2 connection of a gateway.
// Both ends read and write the frames of a connection one after the other: 300 watches on
// one connection get two thirds of the throughput that they get on twenty. With 16 on each,
// thousands of watches still take few file descriptors.
const DefaultMaxStreams = 16

// Config of a server behind a gateway. Files are reloaded when they change, unless stated
// otherwise.
type Config struct {
	// Listen are the addresses to which gateways connect. Required.
	Listen []serve.ListenAddress
	// ProbeListen is the address for probes; see serve.Config.Probe. "": none.
	ProbeListen string
	// Etcd keeps everything. Required.
	Etcd etcd.Config
	// Encryption encrypts what is stored.
	Encryption encryption.Config
	// RequestHeaderCAFile has the CAs of the front proxy's certificate. Its CN must be
	// in RequestHeaderAllowedNames (empty: any). On a unix socket a peer of the same uid
	// is a front proxy.
	RequestHeaderCAFile       string
	RequestHeaderAllowedNames []string
	// Gateway serves the objects of other servers. With an empty URL the parts that need
	// them do not run.
	Gateway client.Gateway
	// ShutdownDelay is how long the server continues to serve after it stops being ready,
	// so that gateways see it and send their requests to another server. Default: none.
	ShutdownDelay time.Duration
	// Connections bound the connections of gateways over the network.
	Connections inflight.Bounds
	// Egress says how connections leave the process. Default: directly.
	Egress egress.Selector
	// AdmissionConfigFile is admission.EngineConfig.ConfigFile.
	AdmissionConfigFile string
	// CBOR serves and accepts CBOR too.
	CBOR bool
	// Profiling serves /debug/pprof.
	Profiling bool
	// Audit configures which requests are audited, and where events are written.
	// Default: none. Its files are read once.
	Audit audit.Options
	// TracingConfigFile is a TracingConfiguration in the form of kube-apiserver; "":
	// nothing is traced.
	TracingConfigFile string
	// Logger; nil: slog.Default().
	Logger *slog.Logger
}

// Complete sets defaults.
func (cfg *Config) Complete() {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.TracingConfigFile != "" {
		cfg.Etcd.Trace = tracing.Stored
	}
}

// Metrics returns the metrics of the process, including those of upstream's engines, and others of
// upstream's packages whose names begin with one of the prefixes.
func (cfg *Config) Metrics(prefixes ...string) *metrics.Metrics {
	return metrics.New(slices.Concat(cfg.Audit.Metrics(), admission.EngineMetrics(), cfg.Encryption.Metrics(), egress.Metrics, prefixes)...)
}

// OpenStorage opens the client of etcd and the encryption of what it stores. Close them in this order.
func (cfg *Config) OpenStorage() (*etcd.Client, *encryption.Encryption, error) {
	cfg.Encryption.Host = identity.Host()
	encrypted, err := encryption.Open(cfg.Encryption)
	if err != nil {
		return nil, nil, err
	}
	encrypted.Apply(&cfg.Etcd)
	opened, err := etcd.Open(cfg.Etcd)
	if err != nil {
		encrypted.Close()
		return nil, nil, err
	}
	return opened, encrypted, nil
}

// UserAgent returns the User-Agent of requests to the gateway.
func UserAgent(name string) string { return "portico-" + name }

// GatewayTransport returns the transport for all requests to the gateway; nil if there is
// none.
func (cfg *Config) GatewayTransport() (http.RoundTripper, error) {
	if cfg.Gateway.URL == "" {
		return nil, nil
	}
	return cfg.Gateway.Transport()
}

// Instance returns the name of this process in elections.
func Instance() string {
	return fmt.Sprintf("%s_%d", identity.Host(), os.Getpid())
}

// Identify keeps the Lease of this process in etcd until ctx ends. The server listens already.
func (cfg *Config) Identify(ctx context.Context, kept *etcd.Client, name string, server *serve.Server) error {
	return identity.Open(kept.Store).Keep(ctx, identity.New(name, Instance(), server.Addresses()), cfg.Logger)
}

// Authorize returns a function that asks the gateway about actions that it has not
// authorized (authz.Ask). Without a gateway (nil) they are refused.
func Authorize(gateway *client.Client) func(context.Context, *resource.Action) error {
	var doer authz.Doer
	if gateway != nil { // a nil client in an interface is not nil
		doer = gateway
	}
	return func(ctx context.Context, a *resource.Action) error { return authz.Ask(ctx, doer, a) }
}

// Engine returns the engine that calls admission webhooks and policies. It reads them, and the
// objects that they refer to, from the stores that source returns, and the others through the gateway
// (admission.EngineConfig.Source). source may be nil.
func (cfg *Config) Engine(name string, transport http.RoundTripper, source func(*resource.Info) (resource.Store, rest.Codec)) (*admission.Engine, error) {
	return admission.NewEngine(admission.EngineConfig{
		Source: source, BaseURL: cfg.Gateway.URL, Transport: transport, UserAgent: UserAgent(name), Warn: filter.AddWarning, Egress: cfg.Egress,
		ConfigFile: cfg.AdmissionConfigFile, Logger: cfg.Logger, Waited: filter.AddWait,
	})
}

// timeoutAhead is how much earlier than at the gateway a request times out, so that the
// gateway can pass the response on.
const timeoutAhead = time.Second

// Parts are the parts of a server that differ between processes.
type Parts struct {
	// Name is "core" or "crd". Required, as is the rest.
	Name    string
	Health  *serve.Health
	Metrics *metrics.Metrics
	// Complete reports whether the served resources are known.
	Complete func() bool
	// Routes are the handlers of the process. Server adds those of every process.
	Routes serve.Routes
	// Certificates are certificate files that only this process uses.
	Certificates []authn.CertificateFile
}

// Server returns the listener with its filters. It accepts requests of gateways only, which
// have authorized them.
func (cfg *Config) Server(p Parts) (*serve.Server, error) {
	authenticator, err := authn.FrontProxyOnly(cfg.RequestHeaderCAFile, cfg.RequestHeaderAllowedNames)
	if err != nil {
		return nil, err
	}
	tracer, err := tracing.Open(cfg.TracingConfigFile, tracing.Options{
		Service: UserAgent(p.Name), Instance: cfg.Listen[0].Address, Registry: p.Metrics.Registry(), Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	audited, err := audit.Open(cfg.Audit, cfg.Logger)
	if err != nil {
		return nil, err
	}
	listen, routes := slices.Clone(cfg.Listen), p.Routes
	for i := range listen {
		listen[i].MaxConcurrentStreams = cmp.Or(listen[i].MaxConcurrentStreams, DefaultMaxStreams)
	}
	connections, err := cfg.Connections.Limits()
	if err != nil {
		return nil, err
	}
	routes.Health, routes.Metrics, routes.Version, routes.Profiling = p.Health, p.Metrics.Handler(), version.Handler(), cfg.Profiling
	chain, err := filter.New(filter.Config{
		Handler: serve.NewRouter(routes), Authenticator: authenticator, Complete: p.Complete,
		MaxInFlight: -1, MaxMutatingInFlight: -1, // gateways have admitted the requests
		ManyUsers: true, Ahead: timeoutAhead, Connections: connections,
		Metrics: p.Metrics, Audit: audited, ReturnAnnotations: true, Tracer: tracer, Logger: cfg.Logger.With("server", p.Name),
	})
	if err != nil {
		return nil, err
	}
	return serve.New(serve.Config{
		Name: p.Name, Listen: listen, Probe: cfg.ProbeListen, Chain: chain, Health: p.Health,
		Certificates: append(cfg.certificates(), p.Certificates...), ShutdownDelay: cfg.ShutdownDelay, Logger: cfg.Logger,
	})
}

// certificates returns the certificate files that the process uses, except its serving
// certificate.
func (cfg *Config) certificates() []authn.CertificateFile {
	return []authn.CertificateFile{
		{Usage: "requestheader-client-ca", Path: cfg.RequestHeaderCAFile, CA: true},
		{Usage: "gateway-client", Path: cfg.Gateway.CertFile},
		{Usage: "gateway-ca", Path: cfg.Gateway.CAFile, CA: true},
		{Usage: "etcd-ca", Path: cfg.Etcd.CAFile, CA: true},
		{Usage: "etcd-client", Path: cfg.Etcd.CertFile},
	}
}
