package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"portico/backends/core/plugins"
	"portico/cmd/portico/config"
	"portico/resource/egress"
	"portico/resource/etcd"
	"portico/resource/serve"
)

// flagValues returns the values of all flags by name, for /flagz. None is a secret:
// keys and tokens are in files, and URLs lose their passwords.
func flagValues(fs *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	fs.VisitAll(func(f *pflag.Flag) { out[f.Name] = config.WithoutPasswords(f.Value.String()) })
	return out
}

// AddDiscoveryGrace adds --discovery-grace.
func AddDiscoveryGrace(fs *pflag.FlagSet, to *time.Duration) {
	fs.DurationVar(to, "discovery-grace", 0, "`time` after which the groups of a server that is away are marked Stale in discovery, so that kubectl leaves them out (default: never)")
}

// AddTracing adds --tracing-config-file.
func AddTracing(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "tracing-config-file", "", "`file` with a TracingConfiguration, as for kube-apiserver: the OTLP collector and the sampling rate (default: no tracing)")
}

// EtcdFlags are the flags of the connection to etcd.
type EtcdFlags struct {
	Servers []string
	// Dial is etcd.Config.Dial.
	Dial                      egress.Dial
	prefix                    string
	caFile, certFile, keyFile string
}

// Add adds the flags; servers is the help of --etcd-servers.
func (f *EtcdFlags) Add(fs *pflag.FlagSet, servers string) {
	fs.StringSliceVar(&f.Servers, "etcd-servers", nil, servers)
	fs.StringVar(&f.caFile, "etcd-cafile", "", "PEM `file` of CAs for etcd's certificate (default: the system's)")
	fs.StringVar(&f.certFile, "etcd-certfile", "", "PEM `file` of the client certificate for etcd; needs --etcd-keyfile")
	fs.StringVar(&f.keyFile, "etcd-keyfile", "", "PEM `file` of the key of --etcd-certfile")
}

// AddPrefix adds --etcd-prefix.
func (f *EtcdFlags) AddPrefix(fs *pflag.FlagSet) {
	fs.StringVar(&f.prefix, "etcd-prefix", etcd.DefaultPrefix, "`prefix` of all keys in etcd")
}

// Prefix returns --etcd-prefix.
func (f *EtcdFlags) Prefix() string { return f.prefix }

// Config returns the configuration of the connection; log may be nil.
func (f *EtcdFlags) Config(log *slog.Logger) etcd.Config {
	return etcd.Config{
		Endpoints: f.Servers, CAFile: f.caFile, CertFile: f.certFile, KeyFile: f.keyFile,
		Prefix: f.prefix, Dial: f.Dial, Logger: log,
	}
}

// listenFlags are the flags of the addresses that a process serves on.
type listenFlags struct {
	addresses                []string
	certFile, keyFile, probe string
	NetworkFlags
}

func (f *listenFlags) add(fs *pflag.FlagSet, address, unix string, streams uint) {
	fs.StringSliceVar(&f.addresses, "listen", []string{address}, "`addresses` to serve on, separated by commas: host:port, "+
		"unix:///path ("+unix+"), or systemd:NAME for sockets that systemd passes under that name. May be repeated")
	fs.StringVar(&f.certFile, "tls-cert-file", "", "PEM `file` of the serving certificate, for all addresses but unix sockets. Read again when it changes")
	fs.StringVar(&f.keyFile, "tls-private-key-file", "", "PEM `file` of the key of --tls-cert-file")
	f.NetworkFlags.Add(fs, streams)
	fs.StringVar(&f.probe, "probe-listen", "", "`address` to serve /healthz, /livez, /readyz and /metrics on over plain HTTP and without authentication: host:port, which only monitoring should reach (default: none)")
}

// config returns the addresses; of unix sockets the peer's uid is checked.
func (f *listenFlags) config() ([]serve.ListenAddress, error) {
	if err := f.NetworkFlags.Check(); err != nil {
		return nil, err
	}
	var out []serve.ListenAddress
	network := false
	for _, address := range f.addresses {
		network = network || !strings.HasPrefix(address, "unix://")
		listen := serve.ListenAddress{Address: address, PeerUID: true, TLS: serve.TLS{CertFile: f.certFile, KeyFile: f.keyFile}}
		if err := f.set(&listen); err != nil {
			return nil, err
		}
		out = append(out, listen)
	}
	if !network && f.certFile+f.keyFile != "" {
		return nil, errors.New("--tls-cert-file and --tls-private-key-file have no effect: --listen names unix sockets only, which have no TLS; leave them out")
	}
	if name := f.given(); !network && name != "" {
		return nil, fmt.Errorf("--%s has no effect: --listen names unix sockets only; leave it out", name)
	}
	_, err := f.SharesPort(f.addresses)
	return out, err
}

// frontProxyFlags name the clients that are trusted to name users.
type frontProxyFlags struct {
	caFile string
	names  []string
}

func (f *frontProxyFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.caFile, "requestheader-client-ca-file", "", "PEM `file` of CAs; their clients may name the user in X-Remote-* headers (default: none)")
	fs.StringSliceVar(&f.names, "requestheader-allowed-names", nil, "comma-separated common `names` allowed in certificates of these clients (default: any)")
}

// addAdmissionConfig adds --admission-control-config-file.
func addAdmissionConfig(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "admission-control-config-file", "", "AdmissionConfiguration `file`, as for kube-apiserver: credentials for webhooks, and configurations of admission plugins of the core server (default: none)")
}

// AddAdmission adds the flags of admission plugins, which have kube-apiserver's names.
func AddAdmission(fs *pflag.FlagSet, o *plugins.Options) {
	fs.StringSliceVar(&o.Enable, "enable-admission-plugins", nil, "comma-separated `names` of admission plugins of the core server to use besides those that are on by default")
	fs.StringSliceVar(&o.Disable, "disable-admission-plugins", nil, "comma-separated `names` of admission plugins of the core server not to use, of those that are on by default")
	addAdmissionConfig(fs, &o.ConfigFile)
	o.NotReadyTolerationSeconds = fs.Int64("default-not-ready-toleration-seconds", plugins.DefaultTolerationSeconds, "`seconds` that a new pod tolerates its node not to be ready, unless it says otherwise")
	o.UnreachableTolerationSeconds = fs.Int64("default-unreachable-toleration-seconds", plugins.DefaultTolerationSeconds, "`seconds` that a new pod tolerates its node to be unreachable, unless it says otherwise")
}
