package up

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	core "portico/backends/core"
	"portico/backends/core/controllers"
	"portico/backends/core/kubelet"
	"portico/backends/core/plugins"
	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/config"
	"portico/cmd/portico/server"
	"portico/gateway/authentication"
	"portico/gateway/authorization"
	"portico/resource/audit"
	"portico/resource/egress"
	"portico/resource/encryption"
	"portico/resource/serve"
	"portico/resource/serve/filter"
)

const upExample = `  # everything on this machine, data in the user's data folder
  portico up

  # a second installation beside it
  portico up --listen=127.0.0.1:7443 --data-dir=./data --kubeconfig=./kubeconfig

  # any free port; the kubeconfig knows which
  portico up --listen=127.0.0.1:0

  # with an audit log; the other flags of audit are those of portico gateway
  portico up --audit-policy-file=policy.yaml --audit-log-path=./audit.log

  # with a configuration file for all processes
  portico up --config=portico.yaml

    # portico.yaml: keys are names of flags
    apiVersion: config.portico.dev/v1alpha1
    kind: PorticoConfiguration
    up: {listen: "0.0.0.0:6443"}
    gateway: {request-timeout: 2m}
    core: {event-ttl: 2h}

  # on an etcd of your own
  portico up --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key`

// upFlags are the flags of `portico up`.
type upFlags struct {
	listen                    []string
	sans                      []string // further hosts of the gateway's certificate
	dataDir                   string
	kubeconfig                string
	etcd                      server.EtcdFlags
	life                      pki.Lifetimes
	quota                     server.Quota
	network                   server.NetworkFlags
	egress                    string
	cidrs                     string // of Services
	log                       server.LogFlags
	maxLogSize, maxLogBackups int
	signs                     bool // by authorities of its own
	encryption                encryption.Config
	all                       *pflag.FlagSet
	config                    *config.File // of --config; nil without
}

// checkQuota returns an error for a quota that is too small or of no etcd.
func (f *upFlags) checkQuota() error {
	if len(f.etcd.Servers) > 0 && f.all.Changed("quota-backend-bytes") {
		return errors.New("--quota-backend-bytes applies to the embedded etcd: set the quota of the etcd of --etcd-servers there")
	}
	return f.quota.Check()
}

// check reads the file of --config, and refuses flags of up and of its children that could not work.
func (f *upFlags) check() error {
	if err := config.Refused(server.CheckFlags(f.all)...); err != nil {
		return err
	}
	if err := f.network.Check(); err != nil {
		return err
	}
	if err := f.readConfig(); err != nil {
		return err
	}
	if f.dataDir == "" {
		dir, err := datadir.Default()
		if err != nil {
			return fmt.Errorf("%w; name one with --data-dir", err)
		}
		f.dataDir = dir
	}
	if err := checkSANs(f.sans); err != nil {
		return err
	}
	if err := checkLifetimes(f.life); err != nil {
		return err
	}
	if f.maxLogSize < 1 || f.maxLogBackups < 1 {
		return errors.New("--log-max-size and --log-max-backups must be at least 1")
	}
	if err := f.checkQuota(); err != nil {
		return err
	}
	if err := core.CheckRuntimeConfig(f.valuesFor("core", "runtime-config")); err != nil {
		return fmt.Errorf("--runtime-config: %w", err)
	}
	return f.checkChildren()
}

// New returns the command.
func New() *cobra.Command {
	var f upFlags
	var audited audit.Options
	var signing controllers.Signing
	var limits server.Limits
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a whole installation: etcd, gateway, core and CRD server",
		Long: "Run a whole installation: an embedded etcd and, as child processes, the gateway, the core server and the CRD server.\n" +
			"The first start makes certificates, keys and an administrator's kubeconfig; certificates and authorities are\n" +
			"renewed before they end, also while it runs, and the kubeconfig with them. A child that dies is started again.\n" +
			"Ctrl-C or SIGTERM stops everything in order; a second one stops it at once. Logs are in logs/ in the data folder.",
		Example: upExample,
		Args:    cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return f.check() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			via, err := egress.Open(f.egress)
			if err == nil {
				err = audited.CheckLog()
			}
			if err != nil {
				return err
			}
			f.etcd.Dial, f.signs = via.Etcd, signing.Empty()
			return advise(runStack(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr()))
		},
	}
	flags := cmd.Flags()
	flags.SortFlags, f.all = false, flags
	flags.StringSliceVar(&f.listen, "listen", []string{"127.0.0.1:6443"}, "`addresses` of the gateway, separated by commas: host:port (port 0 chooses a free one), unix:///path, "+
		"or systemd:NAME for sockets that systemd passes under that name. The kubeconfig has the first host:port. May be repeated")
	flags.StringSliceVar(&f.sans, "tls-san", nil, "comma-separated `hosts`, names or addresses by which clients reach the gateway, for its certificate besides those of --listen. May be repeated")
	flags.StringVar(&f.dataDir, "data-dir", "", "`folder` of data, keys, logs and sockets (default: $XDG_DATA_HOME/portico or ~/.local/share/portico)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "second `file` for the administrator's kubeconfig; a file that portico did not write is not replaced")
	addLifetimes(flags, &f.life)
	f.etcd.Add(flags, "`URLs` of an etcd to use instead of the embedded one, separated by commas: https://host:port, http://host:port or unix:///path")
	f.quota.Add(flags)
	flags.String("access-log", "", "`file` to write a line of JSON per request to; - is the gateway's log (default: none)")
	f.network.Add(flags, serve.DefaultMaxConcurrentStreams)
	f.network.AddHTTP2(flags)
	server.AddBrowser(flags, new(filter.Browser))
	limits.AddInFlight(flags)
	limits.AddLongRunning(flags)
	server.AddRequests(flags, new(time.Duration), new(float64))
	server.AddShutdownDelay(flags, new(time.Duration))
	server.AddTokenIssuers(flags, new(authentication.Config))
	server.AddAudit(flags, &audited)
	server.AddAuthorization(flags, new(authorization.Config))
	server.AddAdmission(flags, new(plugins.Options))
	server.AddDiscoveryGrace(flags, new(time.Duration))
	server.AddTracing(flags, new(string))
	server.AddEgress(flags, &f.egress)
	server.AddTokens(flags, new(authentication.Config))
	server.AddTokenLifetimes(flags, new(time.Duration), new(bool))
	server.AddKubelet(flags, new(kubelet.Config))
	server.AddControllers(flags, new([]string), new(controllers.Options))
	server.AddRuntimeConfig(flags, new([]string))
	server.AddAllowPrivileged(flags, new(bool))
	server.AddFeatureGates(flags, new(bool), &f.encryption.KMSv1)
	server.AddEncryption(flags, &f.encryption)
	server.AddSigning(flags, &signing)
	flags.StringVar(&f.cidrs, "service-cluster-ip-range", server.DefaultServiceCIDR, "`CIDRs` of the addresses of Services: one, or one of each IP family separated by a comma, the primary one first")
	server.AddNodePorts(flags, new(string))
	flags.Bool("profiling", false, "serve /debug/pprof/ in every process")
	f.log.Add(flags)
	config.AddFlag(flags)
	flags.IntVar(&f.maxLogSize, "log-max-size", 16, "size in `megabytes` at which a log in logs/ is rotated")
	flags.IntVar(&f.maxLogBackups, "log-max-backups", 1, "`number` of rotated files to keep of each log in logs/")
	return cmd
}

// advise adds the remedy to an error.
func advise(err error) error {
	var inUse *datadir.InUseError
	var file *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &inUse):
		return fmt.Errorf("%w; stop that process, or choose another --data-dir", err)
	case errors.Is(err, pki.ErrForeignKubeconfig):
		return fmt.Errorf("%w and is not replaced; choose another file with --kubeconfig", err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w; free space on that disk", err)
	case errors.As(err, &file):
		return fmt.Errorf("%w; choose writable folders with --data-dir and --kubeconfig", err)
	}
	return err
}

// greet prints the addresses of the installation and commands to try.
func greet(w io.Writer, s *stack) {
	fmt.Fprintf(w, `
Portico is ready.
  endpoint    %s
  kubeconfig  %s
  etcd        %s
  logs        %s

Try:
  export KUBECONFIG=%s
  kubectl api-resources
  kubectl create namespace demo
  kubectl get apiservices

Ctrl-C stops it.
`, s.endpoint, s.kubeconfig, s.etcd.Servers[0], s.dir.File("logs"), cli.ShellQuote(s.kubeconfig))
}
