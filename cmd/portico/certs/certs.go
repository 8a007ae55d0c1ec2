package certs

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/cli"
)

const certsLong = `Make and show certificates, for processes that share no folder.

An installation has three authorities: serving-ca signs certificates of servers, client-ca those of users, and
front-proxy-ca those of gateways, which the servers behind them trust to name users. "portico up" makes its own in pki/ of
its data folder; "portico certs init" makes them for processes that are started one by one, and "portico certs installation"
makes these and all certificates at once.`

// New returns the commands of certificates.
func New() *cobra.Command {
	cmd := &cobra.Command{Use: "certs", Short: "Make and show certificates", Long: certsLong, Args: cli.KnownCommand, RunE: cli.ShowHelp}
	cmd.AddCommand(newCertsInit(), newCertsIssue(), newInstallation(), newCertsKubeconfig(), newCertsRotate(), newCertsShow())
	return cmd
}

// authorityFlags name the folder of the authorities.
type authorityFlags struct{ caDir, dataDir string }

func (f *authorityFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.caDir, "ca-dir", "", "`folder` of the authorities and their keys (default: pki in the data folder)")
	fs.StringVar(&f.dataDir, "data-dir", "", "data `folder` of an installation (default: $XDG_DATA_HOME/portico or ~/.local/share/portico)")
}

func (f *authorityFlags) dir() (string, error) {
	switch {
	case f.caDir != "" && f.dataDir != "":
		return "", errors.New("--ca-dir and --data-dir name the same folder; give one of them")
	case f.caDir != "":
		return f.caDir, nil
	}
	dir := f.dataDir
	if dir == "" {
		var err error
		if dir, err = datadir.Default(); err != nil {
			return "", fmt.Errorf("%w; name one with --ca-dir", err)
		}
	}
	return filepath.Join(dir, datadir.PKIFolder), datadir.CheckAccess(dir)
}

const certsInitExample = `  # authorities for an installation whose processes are started one by one
  portico certs init --ca-dir=./authorities`

func newCertsInit() *cobra.Command {
	var f authorityFlags
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make the authorities and the service-account signing key",
		Long: "Make the three authorities and the key that signs service-account tokens. Files that exist are kept.\n" +
			"Keep the folder where certificates are issued: its keys make certificates for every user and server.",
		Example: certsInitExample,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.caDir == "" && f.dataDir == "" {
				return errors.New("--ca-dir is missing: name the folder of the authorities, as in --ca-dir=./authorities")
			}
			dir, err := f.dir()
			if err != nil {
				return err
			}
			if err := pki.EnsureAuthorities(dir); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "authorities  %s\n\nNext: portico certs issue server --ca-dir=%s …\n", dir, cli.ShellQuote(dir))
			return err
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	f.add(fs)
	fs.Lookup("ca-dir").Usage = "`folder` of the authorities and their keys; made if needed. Required, unless --data-dir is given"
	fs.Lookup("data-dir").Usage = "data `folder` of an installation; they are made in its folder pki"
	return cmd
}
