package server

import (
	"context"

	"github.com/spf13/pflag"

	"portico/backends/process"
	"portico/cmd/internal/pace"
	"portico/cmd/portico/config"
	"portico/resource/egress"
)

// serverFlags are the flags that all servers share.
type serverFlags struct {
	log    LogFlags
	listen listenFlags
	etcd   EtcdFlags
	proxy  frontProxyFlags
	egress string
}

// backendFlags are the flags that `portico core` and `portico crd` share.
type backendFlags struct{ serverFlags }

// begin adds the flags that --help shows before the process's own. gateway completes
// the help of --gateway: what the process uses the gateway for.
func (f *backendFlags) begin(fs *pflag.FlagSet, cfg *process.Config, address, gateway string) {
	f.listen.add(fs, address, "for a gateway of the same user on this machine", process.DefaultMaxStreams)
	f.etcd.Add(fs, "`URLs` of etcd, separated by commas: https://host:port, http://host:port or unix:///path. Required")
	f.etcd.AddPrefix(fs)
	AddEncryption(fs, &cfg.Encryption)
	f.proxy.add(fs)
	fs.StringVar(&cfg.Gateway.URL, "gateway", "", "`URL` of the gateway, https://host:port, "+gateway)
	fs.StringVar(&cfg.Gateway.CAFile, "gateway-ca-file", "", "PEM `file` of CAs for the gateway's certificate (default: the system's)")
	fs.StringVar(&cfg.Gateway.CertFile, "gateway-cert-file", "", "PEM `file` of the client certificate for the gateway")
	fs.StringVar(&cfg.Gateway.KeyFile, "gateway-key-file", "", "PEM `file` of the key of --gateway-cert-file")
}

// end adds the flags that --help shows after the process's own.
func (f *backendFlags) end(fs *pflag.FlagSet, cfg *process.Config) {
	AddFeatureGates(fs, &cfg.CBOR, &cfg.Encryption.KMSv1)
	AddAudit(fs, &cfg.Audit)
	AddTracing(fs, &cfg.TracingConfigFile)
	AddEgress(fs, &f.egress)
	fs.DurationVar(&cfg.ShutdownDelay, ShutdownDelay, 0, "`time` to keep serving after SIGTERM while /readyz fails; longer than the interval of health checks")
	fs.BoolVar(&cfg.Profiling, "profiling", false, "serve /debug/pprof/")
	f.log.Add(fs)
	config.AddFlag(fs)
}

// check completes the configuration by the flags, and refuses what could not work. refusals returns the
// refusals of the configuration.
func (f *backendFlags) check(fs *pflag.FlagSet, cfg *process.Config, refusals func() []error) (err error) {
	if cfg.Listen, err = f.listen.config(); err != nil {
		return refused(fs, err)
	}
	cfg.ProbeListen, cfg.Connections = f.listen.probe, f.listen.bounds
	cfg.RequestHeaderCAFile, cfg.RequestHeaderAllowedNames = f.proxy.caFile, f.proxy.names
	var via error
	cfg.Egress, via = egress.Open(f.egress)
	f.etcd.Dial, cfg.Audit.Webhook.Dial = cfg.Egress.Etcd, cfg.Egress.ControlPlane
	cfg.Etcd = f.etcd.Config(nil)
	return refused(fs, append([]error{f.log.check(), via}, refusals()...)...)
}

// run runs the server that open makes with cfg, which is complete.
func (f *backendFlags) run(ctx context.Context, cfg *process.Config, open func() (server, error)) error {
	log, output, err := serverProcess(ctx, f.log, pace.ForObjects)
	if err != nil {
		return err
	}
	cfg.Logger, cfg.Etcd.Logger = log, log
	s, err := open()
	if err != nil {
		return err
	}
	return runNotifying(ctx, s, output)
}
