package adopt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/server"
	"portico/resource/authn"
	"portico/resource/encryption"
	"portico/resource/etcd"
)

const example = `  # what Portico would serve, while kube-apiserver still runs
  portico adopt --dry-run --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key

  # the same of a snapshot that etcdctl or k3s saved
  portico adopt --dry-run --snapshot=snapshot.db

  # with kube-apiserver stopped
  portico adopt --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key --snapshot-to=before.db`

type options struct {
	etcd                 server.EtcdFlags
	encryption           encryption.Config
	snapshot             string // to read
	snapshotTo           string
	keyFiles             []string
	dryRun, saved, force bool
	out                  cli.OutputFlag
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "adopt",
		Short: "Take over an etcd that kube-apiserver wrote",
		Long: `Read all keys of an etcd that kube-apiserver wrote, print for each resource what becomes of its objects, and prepare etcd so
that portico up, or gateway, core and crd, serve it: from then on it is Portico's, until kube-apiserver is started on it again.
With --dry-run nothing is written. It refuses to write while a kube-apiserver runs, while objects are encrypted or cannot be
decoded, and without a backup. With --encryption-provider-config it reads what kube-apiserver encrypted. Run twice, it finds
nothing to do. Exit code 1 means that something is refused, or would be.`,
		Example: example,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			return cli.QuietIfStopped(cmd.Context(), err)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.dryRun, "dry-run", false, "write nothing")
	o.etcd.Add(fs, "`URLs` of the etcd, separated by commas")
	o.etcd.AddPrefix(fs)
	server.AddEncryptionFile(fs, &o.encryption)
	fs.StringVar(&o.snapshot, "snapshot", "", "`file` of a snapshot of etcd to read instead; needs --dry-run, and its size in the folder for temporary files")
	fs.StringVar(&o.snapshotTo, "snapshot-to", "", "new `file` for a snapshot of etcd, saved before anything is written")
	fs.BoolVar(&o.saved, "yes", false, "write without --snapshot-to: there is a backup")
	fs.StringSliceVar(&o.keyFiles, "service-account-key-file", nil, "PEM `files` with the keys of service-account tokens; checks that they signed the tokens in Secrets")
	fs.BoolVar(&o.force, "force", false, "write although it is refused")
	o.out.Add(cmd)
	return cmd
}

// check refuses flags that do not go together.
func (o *options) check() error {
	switch {
	case len(o.etcd.Servers) == 0 && o.snapshot == "":
		return errors.New("--etcd-servers is missing, as in --etcd-servers=https://etcd-0:2379, or --snapshot")
	case len(o.etcd.Servers) > 0 && o.snapshot != "":
		return errors.New("--snapshot: the snapshot is read instead of --etcd-servers; name one of them")
	case o.snapshot != "" && !o.dryRun:
		return errors.New("--snapshot: a snapshot can only be examined; add --dry-run")
	case o.dryRun && (o.snapshotTo != "" || o.saved || o.force):
		return errors.New("--dry-run writes nothing: --snapshot-to, --yes and --force have no effect with it")
	case o.saved && o.snapshotTo != "":
		return errors.New("--yes is for a backup that exists: it has no effect with --snapshot-to")
	}
	return o.out.Check()
}

func (o *options) run(ctx context.Context, w, errOut io.Writer) error {
	if err := o.check(); err != nil {
		return err
	}
	var keys tokenKeys
	if len(o.keyFiles) > 0 {
		read, err := authn.NewPublicKeys(o.keyFiles...)
		if err != nil {
			return fmt.Errorf("--service-account-key-file: %w", err)
		}
		keys = read.Keys()
	}
	client, stop, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer stop()
	s, err := newSurvey(client, keys)
	if err != nil {
		return err
	}
	if err := s.run(ctx, errOut); err != nil {
		return err
	}
	a, err := newAdoption(ctx, client, s)
	if err != nil {
		return err
	}
	report := s.report(o.snapshot == "", a)
	if err := o.print(w, report); err != nil {
		return err
	}
	if o.dryRun {
		return refused(report.Problems, "adoption would be refused: ")
	}
	return o.adopt(ctx, a, report, w, errOut)
}

// refused returns the problems as an error, nil for none.
func refused(problems []string, before string) error {
	if len(problems) == 0 {
		return nil
	}
	return errors.New(before + strings.Join(problems, "; "))
}

// open returns a client of the etcd or the snapshot.
func (o *options) open(ctx context.Context) (client *etcd.Client, stop func(), err error) {
	encrypted, err := encryption.Open(o.encryption)
	if err != nil {
		return nil, nil, err
	}
	cfg, end := o.etcd.Config(slog.New(slog.DiscardHandler)), encrypted.Close
	encrypted.Apply(&cfg)
	if o.snapshot != "" {
		endpoint, remove, err := openSnapshot(ctx, o.snapshot)
		if err != nil {
			encrypted.Close()
			return nil, nil, err
		}
		cfg.Endpoints, end = []string{endpoint}, func() { remove(); encrypted.Close() }
	}
	err = etcd.Diagnose(ctx, cfg)
	if err == nil {
		client, err = etcd.Open(cfg)
	}
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("--etcd-servers: %w", err)
	}
	return client, func() { client.Close(); end() }, nil
}

// adopt writes what is left to be written, unless that is refused.
func (o *options) adopt(ctx context.Context, a *adoption, report *Report, w, errOut io.Writer) error {
	if len(report.Changes) == 0 {
		_, err := fmt.Fprintf(w, "\nadopted at %s; there is nothing to do\n", a.mark.Time.Format(timeFormat))
		return err
	}
	if !o.force {
		if err := refused(report.Problems, ""); err != nil {
			return err
		}
	}
	if !o.saved {
		if o.snapshotTo == "" {
			return errors.New("there is no way back without a backup: save one with --snapshot-to=FILE, or say with --yes that there is one")
		}
		if err := saveSnapshot(ctx, a.client, o.snapshotTo, errOut); err != nil {
			return err
		}
	}
	if err := a.write(ctx); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\nadopted: start portico up with --etcd-servers, or gateway, core and crd\n")
	return err
}
