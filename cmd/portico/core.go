package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	core "portico/backends/core"
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

func newCore() *cobra.Command {
	var f coreFlags
	cmd := &cobra.Command{
		Use:     "core",
		Short:   "Run the core server: the built-in kinds",
		Long:    "Run the core server: namespaces, configmaps, secrets, services, service accounts, events, leases and the other\nbuilt-in kinds, with the controllers that belong to them. It is a server behind a gateway: users are who the\ngateway says they are, and only a gateway is let in.",
		Example: coreExample,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.cfg.MaxTokenExpiration < core.MinMaxTokenExpiration {
				return fmt.Errorf("--service-account-max-token-expiration=%v: it must be at least %v", f.cfg.MaxTokenExpiration, core.MinMaxTokenExpiration)
			}
			if err := f.complete(cmd.Context(), &f.cfg.Config); err != nil {
				return err
			}
			c, err := core.New(f.cfg)
			if err != nil {
				return err
			}
			return c.Run(cmd.Context())
		},
	}
	f.add(cmd)
	return cmd
}

func (f *coreFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.SortFlags = false
	f.begin(fs, &f.cfg.Config, "127.0.0.1:7443", "by which a deleted namespace is drained of what other servers keep (default: only what this one keeps is drained)")
	fs.StringVar(&f.cfg.ServiceAccountIssuer, "service-account-issuer", "", "`URL` that tokens made here name as their issuer; the gateway's must be the same")
	fs.StringVar(&f.cfg.ServiceAccountSigningKeyFile, "service-account-signing-key-file", "", "PEM `file` of the key that tokens are signed with (default: no tokens are made)")
	fs.DurationVar(&f.cfg.MaxTokenExpiration, "service-account-max-token-expiration", core.DefaultMaxTokenExpiration, "longest `time` that a token made here is good for, between 1h and 2^32 seconds; a request for more gets this, with a warning")
	fs.StringSliceVar(&f.cfg.APIAudiences, "api-audiences", nil, "`audiences`, separated by commas, of tokens whose requests name none (default: the issuer)")
	fs.StringVar(&f.cfg.RootCAFile, "root-ca-file", "", "PEM `file` published as ConfigMap kube-root-ca.crt in every namespace (default: none is)")
	fs.StringVar(&f.cfg.ServiceClusterIPRange, "service-cluster-ip-range", "10.96.0.0/16", "`CIDR` that Services get their addresses from")
	fs.StringVar(&f.cfg.AdvertiseAddress, "advertise-address", "", "`host:port` of the gateway, published as the endpoint of Service default/kubernetes (default: none is)")
	fs.DurationVar(&f.cfg.EventTTL, "event-ttl", time.Hour, "`time` for which events are kept")
	f.end(fs, &f.cfg.Config)
}
