package certs

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"portico/cmd/internal/pki"
	"portico/cmd/portico/cli"
)

const installationLong = `Make all certificates of an installation whose processes share no folder: the folder authorities, and a folder each for
gateway, core, crd, etcd and admin (a kubeconfig), with what the processes of that name need and no more. Give each process
its folder, and keep the others from it. Replicas of a process share a folder: name the hosts of all.

Run it again to renew what is about to expire and to add hosts: all else is kept, and processes read new files by themselves.
Authorities live ten years.`

const installationExample = `  # two gateways, a core and a CRD server, and three members of etcd
  portico certs installation --dir=./pki --server=https://portico.example.com:6443 \
    --gateway-host=portico.example.com --gateway-host=gateway-0 --gateway-host=gateway-1 \
    --core-host=core --crd-host=crd --etcd-host=etcd-0 --etcd-host=etcd-1 --etcd-host=etcd-2

  # with an etcd that has certificates already
  portico certs installation --dir=./pki --server=https://portico.example.com:6443 \
    --gateway-host=portico.example.com --core-host=core.internal --crd-host=crd.internal`

func newInstallation() *cobra.Command {
	var in pki.Installation
	cmd := &cobra.Command{
		Use:     "installation",
		Short:   "Make all certificates of an installation, a folder for each process",
		Long:    installationLong,
		Example: installationExample,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkInstallation(&in); err != nil {
				return err
			}
			if err := pki.EnsureInstallation(in); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), `certificates  %s

Next: copy each folder below it to the machines of the processes of that name, gateway, core, crd and etcd, and to no other one;
authorities, which has keys that sign, and admin, with its kubeconfig, stay with you. portico gateway --help, portico core --help and
portico crd --help have the flags for the files.
`, in.Dir)
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&in.Dir, "dir", "", "`folder` of the folders; made if needed. Required")
	fs.StringVar(&in.Server, "server", "", "`URL` of the gateway for the administrator's kubeconfig, https://host:port. Required")
	fs.StringSliceVar(&in.Gateway, "gateway-host", nil, "`host` or address of a gateway, without a port. May be repeated. Required")
	fs.StringSliceVar(&in.Core, "core-host", nil, "`host` or address of a core server. May be repeated. Required")
	fs.StringSliceVar(&in.CRD, "crd-host", nil, "`host` or address of a CRD server. May be repeated. Required")
	fs.StringSliceVar(&in.Etcd, "etcd-host", nil, "`host` or address of a member of etcd. May be repeated (default: none; etcd has certificates of its own)")
	return cmd
}

func checkInstallation(in *pki.Installation) error {
	if in.Dir == "" {
		return errors.New("--dir is missing, as in --dir=./pki")
	}
	if u, err := url.Parse(in.Server); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "" || u.User != nil {
		return fmt.Errorf("--server %q: must have the form https://host:port", in.Server)
	}
	for _, f := range []struct {
		flag     string
		hosts    []string
		required bool
	}{
		{"gateway-host", in.Gateway, true}, {"core-host", in.Core, true}, {"crd-host", in.CRD, true}, {"etcd-host", in.Etcd, false},
	} {
		if f.required && len(f.hosts) == 0 {
			return fmt.Errorf("--%[1]s is missing: name each host and address, as in --%[1]s=host-0 --%[1]s=host-1", f.flag)
		}
		for _, host := range f.hosts {
			if err := checkHost(f.flag, host); err != nil {
				return err
			}
		}
	}
	return nil
}
