package certs

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"portico/backends/core/services"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/cli"
)

const certsIssueExample = `  # authorities: keep this folder where certificates are issued
  portico certs init --ca-dir=./authorities

  # a core server on another machine: its certificate, its certificate as a client of the gateway, the key that signs
  # tokens; ./for-core has all that it needs
  portico certs issue server --ca-dir=./authorities --name=core --host=127.0.0.2 --host=core.internal --out=./for-core
  portico certs issue client --ca-dir=./authorities --name=core-client --user=system:portico:core --out=./for-core
  cp ./authorities/service-account.key ./for-core/
  portico core --listen=0.0.0.0:7443 --tls-cert-file=for-core/core.crt --tls-private-key-file=for-core/core.key \
    --requestheader-client-ca-file=for-core/front-proxy-ca.crt --requestheader-allowed-names=front-proxy-client \
    --gateway=https://portico.example.com:6443 --gateway-ca-file=for-core/serving-ca.crt \
    --gateway-cert-file=for-core/core-client.crt --gateway-key-file=for-core/core-client.key \
    --service-account-issuer=https://portico.example.com --service-account-signing-key-file=for-core/service-account.key \
    --etcd-servers=https://etcd-0:2379 --etcd-cafile=etcd-ca.crt

  # a CRD server: the user system:portico:crd, and no key for tokens
  portico certs issue server --ca-dir=./authorities --name=crd --host=crd.internal --out=./for-crd
  portico certs issue client --ca-dir=./authorities --name=crd-client --user=system:portico:crd --out=./for-crd

  # a gateway: its certificate, the certificate that it shows to servers, the key that verifies tokens
  portico certs issue server --ca-dir=./authorities --name=gateway --host=portico.example.com \
    --service-cluster-ip-range=10.96.0.0/16 --out=./for-gateway
  portico certs issue front-proxy --ca-dir=./authorities --out=./for-gateway
  cp ./authorities/service-account.pub ./for-gateway/
  portico gateway --listen=0.0.0.0:6443 --tls-cert-file=for-gateway/gateway.crt --tls-private-key-file=for-gateway/gateway.key \
    --client-ca-file=for-gateway/client-ca.crt --requestheader-client-ca-file=for-gateway/front-proxy-ca.crt \
    --proxy-client-cert-file=for-gateway/front-proxy-client.crt --proxy-client-key-file=for-gateway/front-proxy-client.key \
    --service-account-issuer=https://portico.example.com --service-account-key-file=for-gateway/service-account.pub \
    --backend=core=https://core.internal:7443 --backend-ca-file=for-gateway/serving-ca.crt \
    --etcd-servers=https://etcd-0:2379 --etcd-cafile=etcd-ca.crt

  # a user in two groups, for a day
  portico certs issue client --ca-dir=./authorities --user=jane --group=dev --group=ops --valid-for=24h --out=./jane`

// defaultValidity is the default lifetime of a certificate.
const defaultValidity = 365 * 24 * time.Hour

// issueFlags are the flags of the commands of `portico certs issue`.
type issueFlags struct {
	authority authorityFlags
	out       string
	req       pki.Request
}

func newCertsIssue() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Make a certificate and its key",
		Long: "Make a certificate and its key, signed by one of the authorities, in a folder with the authorities' certificates:\n" +
			"what a process on another machine needs. Keys are readable by their owner only.",
		Example: certsIssueExample,
		Args:    cli.KnownCommand,
		RunE:    cli.ShowHelp,
	}
	cmd.AddCommand(newIssueServer(), newIssueClient(), newIssueFrontProxy())
	return cmd
}

func newIssueServer() *cobra.Command {
	f := issueFlags{req: pki.Request{By: pki.ServingAuthority}}
	var cidrs string
	cmd := f.command("server", "Make the certificate of a server: a gateway or one behind it", func() error {
		if len(f.req.Hosts) == 0 {
			return errors.New("--host is missing: name each host and address of the server, as in --host=127.0.0.2 --host=core.internal")
		}
		for _, host := range f.req.Hosts {
			if err := checkHost("host", host); err != nil {
				return err
			}
		}
		if cidrs != "" {
			hosts, err := services.Hosts(cidrs)
			if err != nil {
				return fmt.Errorf("--service-cluster-ip-range: %w", err)
			}
			f.req.Hosts = append(f.req.Hosts, hosts...)
		}
		f.req.User = f.req.Name
		return nil
	})
	fs := cmd.Flags()
	fs.StringVar(&f.req.Name, "name", "server", "`name` of the server and of the files")
	fs.StringSliceVar(&f.req.Hosts, "host", nil, "`host` or address of the server, without a port. May be repeated. Required")
	fs.StringVar(&cidrs, "service-cluster-ip-range", "", "`CIDRs` of Services, as of the core server: for a gateway that clients reach as Service default/kubernetes, by its names and the first address of each (default: none)")
	f.add(cmd)
	return cmd
}

func newIssueClient() *cobra.Command {
	f := issueFlags{req: pki.Request{By: pki.ClientAuthority}}
	cmd := f.command("client", "Make the certificate of a user of the gateway", func() error {
		if f.req.User == "" {
			return errors.New("--user is missing, as in --user=jane")
		}
		if f.req.Name == "" {
			f.req.Name = strings.NewReplacer(":", "-", "/", "-").Replace(f.req.User)
		}
		return nil
	})
	fs := cmd.Flags()
	fs.StringVar(&f.req.User, "user", "", "`name` of the user; system:portico:core and system:portico:crd for these servers. Required")
	fs.StringSliceVar(&f.req.Groups, "group", nil, "`group` of the user; system:masters may do everything. May be repeated")
	fs.StringVar(&f.req.Name, "name", "", "`name` of the files (default: the user, with - for : and /)")
	f.add(cmd)
	return cmd
}

func newIssueFrontProxy() *cobra.Command {
	f := issueFlags{req: pki.Request{By: pki.FrontProxyAuthority}}
	cmd := f.command("front-proxy", "Make the client certificate of a gateway for the servers behind it", func() error { return nil })
	fs := cmd.Flags()
	fs.StringVar(&f.req.User, "common-name", pki.FrontProxyName, "`name` for --requestheader-allowed-names of the servers")
	fs.StringVar(&f.req.Name, "name", pki.FrontProxyName, "`name` of the files")
	f.add(cmd)
	return cmd
}

func (f *issueFlags) command(use, short string, complete func() error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: certsIssueExample, Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(complete(), lifetime(cmd.Flags(), &f.req)); err != nil {
				return err
			}
			return f.issue(cmd.OutOrStdout())
		},
	}
}

func (f *issueFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.out, "out", ".", "`folder` for the files; made if needed")
	addLifetime(fs, &f.req)
	fs.BoolVar(&f.req.Replace, "force", false, "replace existing files")
	f.authority.add(fs)
}

func (f *issueFlags) issue(w io.Writer) error {
	dir, err := f.authority.dir()
	if err != nil {
		return err
	}
	issued, err := pki.Issue(dir, f.out, f.req)
	if err != nil {
		return adviseIssue(err, "--out or --name")
	}
	fmt.Fprintf(w, "certificate  %s\nkey          %s\ngood until   %s\n", issued.Pair.CertFile, issued.Pair.KeyFile, issued.NotAfter.Local().Format(time.RFC3339))
	_, err = fmt.Fprintf(w, "authorities  %s\n", strings.Join(issued.Authorities, "\n             "))
	return err
}

const flagValidFor = "valid-for"

func addLifetime(fs *pflag.FlagSet, req *pki.Request) {
	fs.DurationVar(&req.ValidFor, flagValidFor, defaultValidity, "`lifetime` of the certificate, such as 720h; no longer than its authority's")
}

// lifetime checks the lifetime of a certificate. The default is shortened to that of the
// authority; a given one is not.
func lifetime(fs *pflag.FlagSet, req *pki.Request) error {
	if req.ValidFor <= 0 {
		return fmt.Errorf("--%s must be positive, such as 720h", flagValidFor)
	}
	req.Whole = fs.Changed(flagValidFor)
	return nil
}

// adviseIssue adds the remedy to an error of issuing a certificate. flags name other files.
func adviseIssue(err error, flags string) error {
	var exist *pki.FilesExistError
	switch {
	case errors.As(err, &exist):
		return fmt.Errorf("%w; replace it with --force, or choose another %s", err, flags)
	case errors.Is(err, pki.ErrNoAuthority):
		return fmt.Errorf(`%w; name the folder of the authorities with --ca-dir, or make some with "portico certs init"`, err)
	}
	return err
}

// checkHost checks that the value of a flag is a host name, with or without a wildcard, or an address.
func checkHost(flag, host string) error {
	if net.ParseIP(host) != nil {
		return nil
	}
	if h, port, err := net.SplitHostPort(host); err == nil && h != "" && !strings.Contains(port, "/") {
		return fmt.Errorf("--%s %q: must not have a port; use %q", flag, host, h)
	}
	name := strings.TrimPrefix(host, "*.")
	if len(validation.IsDNS1123Subdomain(strings.ToLower(name))) > 0 {
		return fmt.Errorf("--%s %q: must be a host name or an address", flag, host)
	}
	return nil
}
