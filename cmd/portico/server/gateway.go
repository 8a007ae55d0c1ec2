package server

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico/cmd/internal/logging"
	"portico/cmd/internal/pace"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/config"
	"portico/gateway"
	"portico/resource/egress"
	"portico/resource/serve"
	"portico/resource/serve/filter"
)

const gatewayExample = `  # in front of a core server on a unix socket
  portico gateway --listen=0.0.0.0:6443 --tls-cert-file=gateway.crt --tls-private-key-file=gateway.key \
    --client-ca-file=client-ca.crt --requestheader-client-ca-file=front-proxy-ca.crt \
    --proxy-client-cert-file=front-proxy.crt --proxy-client-key-file=front-proxy.key \
    --service-account-issuer=https://portico.example.com --service-account-key-file=service-account.pub \
    --etcd-servers=https://etcd-0:2379,https://etcd-1:2379 --etcd-cafile=etcd-ca.crt \
    --backend=core=unix:///run/portico/core.sock

  # in front of two core and two CRD servers on other machines, with the files of "portico certs issue"; --state-dir keeps what
  # the gateway knows for a start while etcd is away
  portico gateway --listen=0.0.0.0:6443 --tls-cert-file=gateway.crt --tls-private-key-file=gateway.key \
    --client-ca-file=client-ca.crt --requestheader-client-ca-file=front-proxy-ca.crt \
    --proxy-client-cert-file=front-proxy-client.crt --proxy-client-key-file=front-proxy-client.key \
    --service-account-issuer=https://portico.example.com --service-account-key-file=service-account.pub \
    --etcd-servers=https://etcd-0:2379,https://etcd-1:2379 --etcd-cafile=etcd-ca.crt --state-dir=/var/lib/portico/gateway \
    --backend=core=https://core-0.example.com:7443,https://core-1.example.com:7443 \
    --backend=crd=https://crd-0.example.com:7444,https://crd-1.example.com:7444 --backend-ca-file=serving-ca.crt

  # with these flags in the section gateway of a file
  portico gateway --config=/etc/portico/portico.yaml`

// gatewayFlags are the flags of `portico gateway`.
type gatewayFlags struct {
	serverFlags
	limits     Limits
	backends   []string
	backendCAs []string
	cfg        gateway.Config
}

// NewGateway returns the command of the gateway.
func NewGateway() *cobra.Command {
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:     "gateway",
		Short:   "Run the gateway: the endpoint for clients",
		Long:    "Run the gateway: it authenticates and authorizes every request, serves discovery, API registration and\naccess policy itself, and proxies all else to the servers behind it.\nIt needs etcd; it starts and serves while servers behind it are away.",
		Example: gatewayExample + auditExample,
		Args:    cli.NoArguments,
		PreRunE: func(cmd *cobra.Command, _ []string) error { return f.check(cmd.Flags()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, output, err := serverProcess(cmd.Context(), f.log, pace.ForTraffic)
			if err != nil {
				return err
			}
			f.cfg.Logger, f.cfg.Etcd.Logger, f.cfg.SetVerbosity, f.cfg.Flags = log, log, logging.Process.SetVerbosity, flagValues(cmd.Flags())
			g, err := gateway.New(f.cfg)
			if err != nil {
				return err
			}
			if !f.limits.fair {
				reads, writes := g.InFlight()
				config.OnReload("max-requests-inflight", setLimit(reads))
				config.OnReload("max-mutating-requests-inflight", setLimit(writes))
			}
			return runNotifying(cmd.Context(), g, output)
		},
	}
	f.add(cmd)
	return cmd
}

func (f *gatewayFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	f.listen.add(fs, "127.0.0.1:6443", "for clients of the same user on this machine, by tokens only", serve.DefaultMaxConcurrentStreams)
	fs.StringVar(&f.cfg.AdvertiseAddress, "advertise-address", "", "`address:port` at which clients reach the gateway, an endpoint of Service default/kubernetes while it runs (default: none)")
	f.listen.AddHTTP2(fs)
	f.etcd.Add(fs, "`URLs` of etcd, separated by commas: https://host:port, http://host:port or unix:///path. Required")
	f.etcd.AddPrefix(fs)
	AddEncryption(fs, &f.cfg.Encryption)
	fs.StringArrayVar(&f.backends, "backend", nil, "a server behind the gateway as `name=URL` (unix:///path or https://host:port), with commas between several URLs; its groups are registered by discovery. May be repeated")
	fs.StringArrayVar(&f.backendCAs, "backend-ca-file", nil, "PEM file of CAs for the certificate of a backend, as `name=file`; a file without a name is for all (default: the system's)")
	addAuthentication(fs, &f.cfg.Authentication)
	AddAuthorization(fs, &f.cfg.Authorization)
	addAdmissionConfig(fs, &f.cfg.AdmissionConfigFile)
	f.proxy.add(fs)
	fs.StringVar(&f.cfg.ProxyCertFile, "proxy-client-cert-file", "", "PEM `file` of the client certificate for servers behind the gateway")
	fs.StringVar(&f.cfg.ProxyKeyFile, "proxy-client-key-file", "", "PEM `file` of the key of --proxy-client-cert-file")
	AddFeatureGates(fs, &f.cfg.CBOR, &f.cfg.Encryption.KMSv1)
	AddBrowser(fs, &f.cfg.Browser)
	f.limits.AddInFlight(fs)
	f.limits.AddLongRunning(fs)
	AddRequests(fs, &f.cfg.RequestTimeout, &f.cfg.GoawayChance)
	AddShutdownDelay(fs, &f.cfg.ShutdownDelay)
	AddDiscoveryGrace(fs, &f.cfg.Grace)
	fs.StringVar(&f.cfg.InstanceID, "instance-id", "", "unique `name` among the gateways on one etcd (default: host name and process id)")
	fs.StringVar(&f.cfg.StateDir, "state-dir", "", "`folder` for a copy of routes and access policy, for a start while etcd is away (default: none)")
	fs.StringVar(&f.cfg.AccessLog, "access-log", "", "`file` to write a line of JSON per request to, reopened when it is renamed; - is standard output (default: none)")
	AddAudit(fs, &f.cfg.Audit)
	AddTracing(fs, &f.cfg.TracingConfigFile)
	AddEgress(fs, &f.egress)
	fs.StringVar(&f.cfg.LogsDir, "logs-dir", "", "`folder` to serve at /logs/ (default: none)")
	fs.BoolVar(&f.cfg.Profiling, "profiling", false, "serve /debug/pprof/, and /debug/flags/v to set the log level")
	f.log.Add(fs)
	config.AddFlag(fs)
}

// ShutdownDelay is the name of the flag of AddShutdownDelay.
const ShutdownDelay = "shutdown-delay-duration"

// AddShutdownDelay adds the flag of the time that a gateway serves on when it is stopped.
func AddShutdownDelay(fs *pflag.FlagSet, to *time.Duration) {
	fs.DurationVar(to, ShutdownDelay, 0, "`time` to keep serving after SIGTERM while /readyz fails, for load balancers to notice")
}

// AddRequests adds the flags of the time of a request and of connections that it ends.
func AddRequests(fs *pflag.FlagSet, timeout *time.Duration, goaway *float64) {
	fs.DurationVar(timeout, "request-timeout", filter.DefaultRequestTimeout, "maximum `time` of a request, without watches and streams")
	fs.Float64Var(goaway, "goaway-chance", 0, "`probability`, up to 0.02, that a request closes its HTTP/2 connection once its requests are done, so that load balancers choose again")
}

// check turns flags into configuration, and refuses what could not work.
func (f *gatewayFlags) check(fs *pflag.FlagSet) error {
	if err := f.complete(); err != nil {
		return refused(fs, err)
	}
	var via error
	f.cfg.Egress, via = egress.Open(f.egress)
	f.etcd.Dial, f.cfg.Audit.Webhook.Dial = f.cfg.Egress.Etcd, f.cfg.Egress.ControlPlane
	f.cfg.Authentication.AnonymousSet = fs.Changed("anonymous-auth")
	authorizers := checkAuthorization(fs, &f.cfg.Authorization)
	f.cfg.Etcd = f.etcd.Config(nil)
	return refused(fs, append([]error{f.log.check(), via, authorizers}, f.cfg.Check()...)...)
}

// complete turns flags into configuration that needs no file.
func (f *gatewayFlags) complete() (err error) {
	f.cfg.PriorityAndFairness = f.limits.fair
	f.cfg.MaxInFlight, f.cfg.MaxMutatingInFlight = f.limits.inFlight()
	f.cfg.MaxLongRunning, f.cfg.MaxLongRunningPerUser = int(f.limits.long), int(f.limits.longPerUser)
	if f.cfg.Listen, err = f.listen.config(); err != nil {
		return err
	}
	f.cfg.ProbeListen, f.cfg.Connections = f.listen.probe, f.listen.bounds
	f.cfg.Authentication.RequestHeader.CAFile, f.cfg.Authentication.RequestHeader.AllowedNames = f.proxy.caFile, f.proxy.names
	// caFiles has the values of --backend-ca-file by name; that of all other backends is "".
	caFiles, seen := map[string]string{}, map[string]bool{}
	for _, s := range f.backendCAs {
		name, file := "", s
		if strings.Contains(s, "=") {
			var err error
			if name, file, err = cli.ParsePair("backend-ca-file", s); err != nil {
				return err
			}
		}
		if other, ok := caFiles[name]; ok && name == "" {
			return fmt.Errorf("--backend-ca-file %q: %s is for all backends already", s, other)
		}
		caFiles[name] = file
	}
	for _, s := range f.backends {
		name, urls, err := cli.ParsePair("backend", s)
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("--backend %q: the name is used twice; give all URLs of one name together, with commas between them", s)
		}
		seen[name] = true
		f.cfg.Backends = append(f.cfg.Backends, gateway.Backend{Name: name, URLs: strings.Split(urls, ","), CAFile: cmp.Or(caFiles[name], caFiles[""])})
	}
	for name := range caFiles {
		if name != "" && !seen[name] {
			return fmt.Errorf("--backend-ca-file: no backend %q", name)
		}
	}
	return nil
}
