package certs

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"portico/cmd/internal/pki"
	"portico/cmd/portico/cli"
)

const certsKubeconfigExample = `  # for jane in the group dev, for a month
  portico certs kubeconfig --server=https://portico.example.com:6443 --user=jane --group=dev --valid-for=720h --out=jane.kubeconfig
  kubectl --kubeconfig=jane.kubeconfig auth whoami

  # for an API server on another machine that sends reviews to the gateway
  portico certs kubeconfig --server=https://portico.example.com:6443 --user=system:billing --out=billing.kubeconfig

  # for an administrator of an installation of "portico up" on this machine
  portico certs kubeconfig --server=https://127.0.0.1:6443 --user=ops --group=system:masters --out=ops.kubeconfig`

// kubeconfigFlags are the flags of `portico certs kubeconfig`.
type kubeconfigFlags struct {
	authority   authorityFlags
	server, out string
	req         pki.Request
}

func newCertsKubeconfig() *cobra.Command {
	var f kubeconfigFlags
	cmd := &cobra.Command{
		Use:   "kubeconfig",
		Short: "Make a kubeconfig for a user, with a certificate in it",
		Long: "Make a certificate for a user of the gateway, and a kubeconfig with it, its key and the CA of the gateway: one file for\n" +
			"kubectl, or for a server that is a client of the gateway. The holder of the file can act as the user.\n" +
			"\"portico core\" and \"portico crd\" take separate files: see portico certs issue --help.",
		Example: certsKubeconfigExample,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := lifetime(cmd.Flags(), &f.req); err != nil {
				return err
			}
			return f.run(cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.server, "server", "", "`URL` of the gateway, https://host:port. Required")
	fs.StringVar(&f.req.User, "user", "", "`name` of the user. Required")
	fs.StringSliceVar(&f.req.Groups, "group", nil, "`group` of the user; system:masters may do everything. May be repeated")
	fs.StringVar(&f.out, "out", "portico.kubeconfig", "`file` to write")
	addLifetime(fs, &f.req)
	fs.BoolVar(&f.req.Replace, "force", false, "replace an existing file")
	f.authority.add(fs)
	return cmd
}

func (f *kubeconfigFlags) run(w io.Writer) error {
	u, err := url.Parse(f.server)
	switch {
	case f.server == "":
		return errors.New("--server is missing, as in --server=https://portico.example.com:6443")
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("--server %q: must have the form https://host:port", f.server)
	case f.req.User == "":
		return errors.New("--user is missing, as in --user=jane")
	}
	dir, err := f.authority.dir()
	if err != nil {
		return err
	}
	notAfter, err := pki.IssueKubeconfig(dir, f.out, f.server, f.req)
	if err != nil {
		return adviseIssue(err, "--out")
	}
	_, err = fmt.Fprintf(w, "kubeconfig   %s\ngood until   %s\n", f.out, notAfter.Local().Format(time.RFC3339))
	return err
}
