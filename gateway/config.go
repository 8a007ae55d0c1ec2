package gateway

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"time"

	"portico/gateway/authentication"
	"portico/gateway/authorization"
	"portico/gateway/routing"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/egress"
	"portico/resource/encryption"
	"portico/resource/etcd"
	"portico/resource/identity"
	"portico/resource/serve"
	"portico/resource/serve/filter"
	"portico/resource/serve/inflight"
)

// Config of a Gateway. Files are read again when they change.
type Config struct {
	// Listen are the addresses for clients. Required.
	Listen []serve.ListenAddress
	// ProbeListen is the address for probes; see serve.Config.Probe. "": none.
	ProbeListen string
	// AdvertiseAddress is the IP address and port at which clients reach the gateway, an
	// endpoint of Service default/kubernetes while it runs; "" or a host name: none.
	AdvertiseAddress string
	// Etcd stores the gateway's own groups. Required.
	Etcd etcd.Config
	// Encryption encrypts what is stored in etcd.
	Encryption encryption.Config
	// Authentication says which credentials are accepted. The gateway presents its own certificate
	// of the CA of front proxies to servers.
	Authentication authentication.Config
	// Authorization is the chain of authorizers. Default: RBAC.
	Authorization authorization.Config
	// ProxyCertFile and ProxyKeyFile are the front-proxy client certificate for servers.
	ProxyCertFile, ProxyKeyFile string
	// Backends are the servers that the gateway starts with; their groups are registered by
	// discovery.
	Backends []Backend
	// Grace is how long the discovery of a server that is away stays Current; then it
	// is Stale. Default 0: until the server is unregistered.
	Grace time.Duration
	// CBOR serves and accepts CBOR too, for the gateway's own kinds.
	CBOR bool
	// Profiling serves /debug/pprof, and /debug/flags if SetVerbosity is not nil.
	Profiling bool
	// SetVerbosity sets the log level, by a number as of the flag -v.
	SetVerbosity func(level string) error
	// Flags are what /flagz shows: the value of each flag, by name.
	Flags map[string]string
	// LogsDir is the folder of the files at /logs/. "": none are served.
	LogsDir string
	// PriorityAndFairness admits requests by FlowSchemas and PriorityLevelConfigurations. The
	// sum of MaxInFlight and MaxMutatingInFlight is the number of seats.
	PriorityAndFairness bool
	// MaxInFlight and MaxMutatingInFlight bound the reads and writes in flight without
	// PriorityAndFairness; see filter.Config.
	MaxInFlight, MaxMutatingInFlight int
	// MaxLongRunning and MaxLongRunningPerUser bound the long-running requests, in all and
	// of one user; 0: no bound.
	MaxLongRunning, MaxLongRunningPerUser int
	// Connections bound the connections of clients.
	Connections inflight.Bounds
	// AdmissionConfigFile is admission.EngineConfig.ConfigFile.
	AdmissionConfigFile string
	// Egress says how connections leave the gateway. Default: directly.
	Egress egress.Selector
	// Browser is what responses tell browsers.
	Browser filter.Browser
	// RequestTimeout bounds requests that are not long-running. Default 60 s.
	RequestTimeout time.Duration
	// ShutdownDelay is how long the gateway continues after it stops being ready. Default 0.
	ShutdownDelay time.Duration
	// GoawayChance is the probability that a request ends its HTTP/2 connection; see
	// filter.Config. Default 0.
	GoawayChance float64
	// InstanceID identifies this gateway among those on one etcd. Default: host and process.
	InstanceID string
	// StateDir is a folder for copies of routes and access policy, for a start while etcd is
	// away. "" keeps none. Gateways must not share it.
	StateDir string
	// AccessLog is the file of the access log, or accesslog.Standard; "": none.
	AccessLog string
	// Audit configures audit; default: nothing is audited. Files are read once.
	Audit audit.Options
	// TracingConfigFile is kube-apiserver's TracingConfiguration; "": nothing is traced.
	TracingConfigFile string
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Backend is a server that the gateway starts with.
type Backend = routing.Backend

// complete fills in the defaults.
func (cfg *Config) complete() {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Authentication.Egress = cfg.Egress
	cfg.Authentication.Complete()
	if cfg.InstanceID == "" {
		cfg.InstanceID = fmt.Sprintf("%s-%d", identity.Host(), os.Getpid())
	}
}

// seats returns the seats of priority and fairness; 0: it is off.
func (cfg *Config) seats() int {
	if !cfg.PriorityAndFairness {
		return 0
	}
	reads, writes := cmp.Or(cfg.MaxInFlight, filter.DefaultMaxInFlight), cmp.Or(cfg.MaxMutatingInFlight, filter.DefaultMaxMutatingInFlight)
	return max(0, reads) + max(0, writes)
}

// certificates returns the files of certificates that the gateway depends on, without its
// serving certificate.
func (cfg *Config) certificates() []authn.CertificateFile {
	files := append(cfg.Authentication.Certificates(),
		authn.CertificateFile{Usage: "proxy-client", Path: cfg.ProxyCertFile},
		authn.CertificateFile{Usage: "etcd-ca", Path: cfg.Etcd.CAFile, CA: true},
		authn.CertificateFile{Usage: "etcd-client", Path: cfg.Etcd.CertFile},
	)
	for _, b := range cfg.Backends {
		files = append(files, authn.CertificateFile{Usage: "backend-ca/" + b.Name, Path: b.CAFile, CA: true})
	}
	return files
}
