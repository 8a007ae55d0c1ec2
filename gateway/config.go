package gateway

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"portico/gateway/routing"
	"portico/resource/audit"
	"portico/resource/authn"
	"portico/resource/etcd"
	"portico/resource/serve"
)

// Config of a Gateway. Files are read again when they change.
type Config struct {
	// Listen is where clients connect. Required.
	Listen serve.ListenAddress
	// Etcd keeps the gateway's own groups. Required.
	Etcd etcd.Config
	// ClientCAFile holds the CAs whose client certificates name users (CN) and
	// groups (O). "" accepts none.
	ClientCAFile string
	// RequestHeaderCAFile holds the CA of front proxies: the gateway shows its
	// own certificate of it to servers, and accepts X-Remote-* from clients
	// whose certificate it vouches for and whose CN is in
	// RequestHeaderAllowedNames (empty: any).
	RequestHeaderCAFile       string
	RequestHeaderAllowedNames []string
	// ProxyCertFile and ProxyKeyFile are the front-proxy client certificate
	// shown to servers.
	ProxyCertFile, ProxyKeyFile string
	// ServiceAccountIssuer is the iss of service account tokens, and
	// ServiceAccountKeyFiles the PEM keys that verify them. Empty accepts none.
	ServiceAccountIssuer   string
	ServiceAccountKeyFiles []string
	// APIAudiences are accepted in tokens. Default: the issuer.
	APIAudiences []string
	// TokenAuthFile is a CSV of static tokens: token,user,uid,"group,group".
	TokenAuthFile string
	// AnonymousAuth lets requests without any credential in as
	// system:anonymous.
	AnonymousAuth bool
	// Backends are the servers that the gateway starts with, whose groups are
	// found by discovery.
	Backends []Backend
	// Grace is how long the discovery of a server that is away stays Current; then it
	// is Stale. Default 0: until the server is unregistered.
	Grace time.Duration
	// Profiling serves /debug/pprof, and /debug/flags if SetVerbosity is not nil.
	Profiling bool
	// SetVerbosity sets the log level, by a number as of the flag -v.
	SetVerbosity func(level string) error
	// Flags are what /flagz shows: the value of each flag, by name.
	Flags map[string]string
	// LogsDir is a folder whose files are served at /logs/. "": none are.
	LogsDir string
	// MaxInFlight and MaxMutatingInFlight bound the reads and writes at work in the
	// gateway itself; 0: the defaults of serve.Config; below 0: no bound.
	MaxInFlight, MaxMutatingInFlight int
	// MaxLongRunning and MaxLongRunningPerUser bound the long-running requests, in all
	// and of one user; 0: no bound.
	MaxLongRunning, MaxLongRunningPerUser int
	// RequestTimeout bounds requests that are not long-running. Default 60 s.
	RequestTimeout time.Duration
	// ShutdownDelay is how long the gateway serves on after it stops being
	// ready. Default 0.
	ShutdownDelay time.Duration
	// GoawayChance is the chance that a request ends its HTTP/2 connection; see
	// serve.Config. Default 0.
	GoawayChance float64
	// InstanceID tells gateways on one etcd apart. Default: host and process.
	InstanceID string
	// StateDir is a folder for what the gateway shall still know when it starts
	// while etcd is away; "" keeps nothing. It belongs to one gateway.
	StateDir string
	// AccessLog is the file that gets a line for every request, or
	// accesslog.Standard; "": none is written.
	AccessLog string
	// Audit says which requests are audited, and where events go. Default: none
	// is. Files are read once.
	Audit audit.Options
	// TracingConfigFile is a TracingConfiguration as kube-apiserver reads it; "":
	// nothing is traced.
	TracingConfigFile string
	// Logger, nil: slog.Default().
	Logger *slog.Logger
}

// Backend is a server the gateway starts with.
type Backend = routing.Backend

// complete fills in the defaults.
func (cfg *Config) complete() {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if len(cfg.APIAudiences) == 0 && cfg.ServiceAccountIssuer != "" {
		cfg.APIAudiences = []string{cfg.ServiceAccountIssuer}
	}
	if cfg.InstanceID == "" {
		// Without a name the process is enough to tell it apart here.
		host, _ := os.Hostname()
		cfg.InstanceID = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
}

// certificates are the files of certificates that the gateway depends on, beside its
// serving certificate.
func (cfg *Config) certificates() []authn.CertificateFile {
	files := []authn.CertificateFile{
		{Usage: "client-ca", Path: cfg.ClientCAFile, CA: true},
		{Usage: "requestheader-client-ca", Path: cfg.RequestHeaderCAFile, CA: true},
		{Usage: "proxy-client", Path: cfg.ProxyCertFile},
		{Usage: "etcd-ca", Path: cfg.Etcd.CAFile, CA: true},
		{Usage: "etcd-client", Path: cfg.Etcd.CertFile},
	}
	for _, b := range cfg.Backends {
		files = append(files, authn.CertificateFile{Usage: "backend-ca/" + b.Name, Path: b.CAFile, CA: true})
	}
	return files
}
