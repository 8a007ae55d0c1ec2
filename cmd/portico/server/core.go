package server

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	core "portico/backends/core"
	"portico/backends/core/controllers"
	"portico/backends/core/kubelet"
	"portico/cmd/portico/cli"
)

const coreExample = `  # on a unix socket, for a gateway of the same user on the same machine
  portico core --listen=unix:///run/portico/core.sock --etcd-servers=unix:///run/portico/etcd.sock

  # for gateways on other machines, which show a front-proxy certificate
  portico core --listen=0.0.0.0:7443 --tls-cert-file=core.crt --tls-private-key-file=core.key \
    --requestheader-client-ca-file=front-proxy-ca.crt --requestheader-allowed-names=front-proxy-client \
    --etcd-servers=https://etcd-0:2379 --etcd-cafile=etcd-ca.crt \
    --gateway=https://portico.example.com:6443 --gateway-ca-file=serving-ca.crt \
    --gateway-cert-file=core-client.crt --gateway-key-file=core-client.key`

// coreFlags are the flags of `portico core`.
type coreFlags struct {
	backendFlags
	cfg core.Config
}

// NewCore returns the command of the core server.
func NewCore() *cobra.Command {
	var f coreFlags
	cmd := &cobra.Command{
		Use:     "core",
		Short:   "Run the core server: the built-in kinds",
		Long:    "Run the core server: namespaces, configmaps, secrets, services, service accounts, events, leases and the other\nbuilt-in kinds, with the controllers that belong to them. It runs behind a gateway: it\naccepts requests of gateways only, and takes the user from their headers.",
		Example: coreExample,
		Args:    cli.NoArguments,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return f.check(cmd.Flags(), &f.cfg.Config, func() []error { return f.cfg.Check() })
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), &f.cfg.Config, func() (server, error) { return core.New(f.cfg) })
		},
	}
	f.add(cmd)
	return cmd
}

func (f *coreFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	f.begin(fs, &f.cfg.Config, "127.0.0.1:7443", "through which objects of other servers are deleted with their namespace (default: objects of this server only)")
	addIssuers(fs, &f.cfg.ServiceAccountIssuers)
	fs.StringVar(&f.cfg.ServiceAccountSigningKeyFile, "service-account-signing-key-file", "", "PEM `file` of the key that signs service-account tokens (default: no tokens are issued)")
	fs.StringSliceVar(&f.cfg.APIAudiences, "api-audiences", nil, "comma-separated `audiences` of tokens if their requests name none (default: the issuers)")
	AddTokenLifetimes(fs, &f.cfg.MaxTokenExpiration, &f.cfg.ExtendTokenExpiration)
	fs.StringVar(&f.cfg.RootCAFile, "root-ca-file", "", "PEM `file` published as ConfigMap kube-root-ca.crt in every namespace (default: none)")
	fs.StringSliceVar(&f.cfg.ServiceClusterIPRanges, "service-cluster-ip-range", []string{DefaultServiceCIDR}, "`CIDRs` of the addresses of Services: one, or one of each IP family separated by a comma, the primary one first")
	AddNodePorts(fs, &f.cfg.ServiceNodePortRange)
	fs.StringVar(&f.cfg.AdvertiseAddress, "advertise-address", "", "`address:port` of a gateway that does not advertise its own, an endpoint of Service default/kubernetes while this server runs (default: none)")
	fs.DurationVar(&f.cfg.EventTTL, "event-ttl", time.Hour, "`lifetime` of events")
	AddKubelet(fs, &f.cfg.Kubelet)
	AddAdmission(fs, &f.cfg.Admission)
	AddControllers(fs, &f.cfg.Controllers, &f.cfg.ControllerOptions)
	AddRuntimeConfig(fs, &f.cfg.RuntimeConfig)
	AddAllowPrivileged(fs, &f.cfg.AllowPrivileged)
	AddSigning(fs, &f.cfg.ControllerOptions.Signing)
	f.end(fs, &f.cfg.Config)
}

// AddTokenLifetimes adds the flags of the lifetimes of service-account tokens.
func AddTokenLifetimes(fs *pflag.FlagSet, longest *time.Duration, extend *bool) {
	fs.DurationVar(longest, "service-account-max-token-expiration", core.DefaultMaxTokenExpiration, "maximum `lifetime` of a token, between 1h and 2^32 seconds; longer requests are shortened with a warning")
	fs.BoolVar(extend, "service-account-extend-token-expiration", true, "let tokens that pods get for 3607s, those of volumes of new pods, live a year; the use of one that should have been replaced is noted in audit and metrics")
}

// AddKubelet adds the flags of connections to kubelets.
func AddKubelet(fs *pflag.FlagSet, cfg *kubelet.Config) {
	fs.StringSliceVar(&cfg.PreferredAddressTypes, "kubelet-preferred-address-types", kubelet.DefaultAddressTypes(), "comma-separated `types` of node addresses for connections to kubelets, the preferred one first")
	fs.StringVar(&cfg.ClientCertFile, "kubelet-client-certificate", "", "PEM `file` of the client certificate for kubelets (default: none)")
	fs.StringVar(&cfg.ClientKeyFile, "kubelet-client-key", "", "PEM `file` of the key of --kubelet-client-certificate")
	fs.StringVar(&cfg.CAFile, "kubelet-certificate-authority", "", "PEM `file` of CAs for the certificates of kubelets (default: they are not verified)")
	fs.BoolVar(&cfg.AllowLoopback, "kubelet-allow-loopback", false, "connect to kubelets at loopback addresses, for log, exec, attach and portforward of nodes on this machine")
}

// AddControllers adds --controllers and the flags of single controllers.
func AddControllers(fs *pflag.FlagSet, to *[]string, opts *controllers.Options) {
	fs.StringSliceVar(to, "controllers", []string{"*"}, "comma-separated `names` of controllers to run: * is all, -NAME is all but NAME. There are: "+
		strings.Join(controllers.Names(), ", "))
	fs.IntVar(&opts.TerminatedPodGCThreshold, "terminated-pod-gc-threshold", 12500, "`number` of terminated pods beyond which pod-garbage-collector-controller deletes them; 0 keeps all")
}

// AddRuntimeConfig adds --runtime-config.
func AddRuntimeConfig(fs *pflag.FlagSet, to *[]string) {
	fs.StringSliceVar(to, "runtime-config", nil, "comma-separated `switches` of built-in APIs: GROUP/VERSION=true or false (v1 is the core group), GROUP/VERSION/RESOURCE=true or false, "+
		"and before them api/all, api/ga, api/beta and api/alpha")
}

// AddAllowPrivileged adds --allow-privileged.
func AddAllowPrivileged(fs *pflag.FlagSet, to *bool) {
	fs.BoolVar(to, "allow-privileged", true, "allow privileged containers (the default of kube-apiserver is false)")
}

// AddSigning adds the flags of the authorities that sign requested certificates.
func AddSigning(fs *pflag.FlagSet, to *controllers.Signing) {
	pair := func(name, of string, files *controllers.SigningFiles) {
		fs.StringVar(&files.CertFile, "cluster-signing-"+name+"cert-file", "", "PEM `file` of the authority that signs CertificateSigningRequests for "+of)
		fs.StringVar(&files.KeyFile, "cluster-signing-"+name+"key-file", "", "PEM `file` of its key")
	}
	pair("", "all signers of kubernetes.io, instead of the following ones (default: nothing is signed; up: authorities of its own)", &to.SigningFiles)
	pair("kubelet-serving-", "kubernetes.io/kubelet-serving", &to.KubeletServing)
	pair("kubelet-client-", "kubernetes.io/kube-apiserver-client-kubelet", &to.KubeletClient)
	pair("kube-apiserver-client-", "kubernetes.io/kube-apiserver-client", &to.KubeAPIServerClient)
	pair("legacy-unknown-", "kubernetes.io/legacy-unknown", &to.LegacyUnknown)
	fs.DurationVar(&to.Duration, "cluster-signing-duration", controllers.DefaultSigningDuration, "longest `lifetime` of a signed certificate; requests may ask for less")
}
