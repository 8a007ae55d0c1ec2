package server

import (
	"errors"

	"github.com/spf13/cobra"

	"portico/backends/crd"
	"portico/cmd/portico/cli"
)

const crdExample = `  # on a unix socket, for a gateway of the same user on the same machine
  portico crd --listen=unix:///run/portico/crd.sock --etcd-servers=unix:///run/portico/etcd.sock \
    --gateway=https://127.0.0.1:6443 --gateway-ca-file=serving-ca.crt \
    --gateway-cert-file=crd-client.crt --gateway-key-file=crd-client.key

  # for gateways on other machines, which show a front-proxy certificate
  portico crd --listen=0.0.0.0:7444 --tls-cert-file=crd.crt --tls-private-key-file=crd.key \
    --requestheader-client-ca-file=front-proxy-ca.crt --requestheader-allowed-names=front-proxy-client \
    --etcd-servers=https://etcd-0:2379 --etcd-cafile=etcd-ca.crt \
    --gateway=https://portico.example.com:6443 --gateway-ca-file=serving-ca.crt \
    --gateway-cert-file=crd-client.crt --gateway-key-file=crd-client.key`

// crdFlags are the flags of `portico crd`.
type crdFlags struct {
	backendFlags
	cfg crd.Config
}

// NewCRD returns the command of the CRD server.
func NewCRD() *cobra.Command {
	var f crdFlags
	cmd := &cobra.Command{
		Use:   "crd",
		Short: "Run the CRD server: CustomResourceDefinitions and the resources they define",
		Long: "Run the CRD server: it stores CustomResourceDefinitions and serves the resources that they define.\n" +
			"It runs behind a gateway: it accepts requests of gateways only, and takes the user from their headers.\n" +
			"It follows namespaces and admission configurations through the gateway, and serves while the gateway is away.",
		Example: crdExample,
		Args:    cli.NoArguments,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			if f.cfg.AdmissionConfigFile != "" && f.cfg.Gateway.URL == "" {
				return errors.New("--admission-control-config-file without --gateway: webhooks are read through the gateway")
			}
			return f.check(cmd.Flags(), &f.cfg.Config, f.cfg.Config.Check)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), &f.cfg.Config, func() (server, error) { return crd.New(f.cfg) })
		},
	}
	f.add(cmd)
	return cmd
}

func (f *crdFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	f.begin(fs, &f.cfg.Config, "127.0.0.1:7444", "through which namespaces are followed (default: no object can be created in a namespace)")
	addAdmissionConfig(fs, &f.cfg.AdmissionConfigFile)
	f.end(fs, &f.cfg.Config)
}
