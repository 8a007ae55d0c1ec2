package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"portico/cmd/internal/datadir"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/server"
	"portico/resource/etcd"
)

const backupExample = `  # of the portico up of this user
  portico backup portico.backup

  # encrypted; age-keygen makes keys
  portico backup portico.backup --passphrase-file=passphrase
  portico backup portico.backup --encrypt-to=age1...

  # of an etcd of your own
  portico backup portico.backup --etcd-servers=https://etcd-0:2379 --etcd-cafile=ca.crt --etcd-certfile=client.crt --etcd-keyfile=client.key \
    --pki-dir=/etc/portico/pki --config=/etc/portico/portico.yaml`

// options are the flags of `portico backup`.
type options struct {
	dataDir, pkiDir, config string
	socket                  string // of the embedded etcd
	etcd                    server.EtcdFlags
	encryption              recipientFlags
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save a running installation in one file",
		Long: `Save a running installation in one file: a snapshot of etcd, the files of pki/ and the configuration file. "-" is standard
output. The file has mode 0600, replaces an older one when it is complete, and is read back. It has every write that was
acknowledged before the point in time that is printed. It holds private keys and all Secrets: encrypt it, or keep it as you keep them.`,
		Example: backupExample,
		Args:    cli.Arguments(1, 1, "portico.backup"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.complete(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.dataDir, "data-dir", "", "data `folder` of a running portico up (default: $XDG_DATA_HOME/portico or ~/.local/share/portico)")
	o.encryption.add(fs)
	fs.StringVar(&o.pkiDir, "pki-dir", "", "`folder` of keys and certificates to save (default: pki in the data folder)")
	fs.StringVar(&o.config, "config", "", "configuration `file` to save (default: none)")
	o.etcd.Add(fs, "`URLs` of an etcd of your own, separated by commas (default: the embedded etcd of the data folder)")
	o.etcd.AddPrefix(fs)
	cmd.AddCommand(newVerify(), newShow())
	return cmd
}

// complete checks flags and fills in defaults.
func (o *options) complete() (err error) {
	if len(o.etcd.Servers) > 0 {
		if o.dataDir != "" && o.pkiDir == "" {
			o.pkiDir = filepath.Join(o.dataDir, datadir.PKIFolder)
		}
		return nil
	}
	if o.dataDir == "" {
		if o.dataDir, err = datadir.Default(); err != nil {
			return fmt.Errorf("%w; name one with --data-dir", err)
		}
	}
	if err := datadir.CheckAccess(o.dataDir); err != nil {
		return err
	}
	if o.pkiDir == "" {
		o.pkiDir = filepath.Join(o.dataDir, datadir.PKIFolder)
	}
	if o.socket, err = datadir.EtcdSocket(o.dataDir); err != nil {
		return fmt.Errorf("no portico up with an etcd of its own runs on %s: name its folder with --data-dir, or your etcd with --etcd-servers", o.dataDir)
	}
	return nil
}

// run makes a backup. Messages go to errOut if the backup goes to standard output.
func (o *options) run(ctx context.Context, file string, out, errOut io.Writer) error {
	recipients, err := o.encryption.recipients()
	if err != nil {
		return err
	}
	files, err := readFiles(o.pkiDir, o.config)
	if err != nil {
		return err
	}
	cfg := o.etcd.Config(slog.New(slog.DiscardHandler))
	if len(cfg.Endpoints) == 0 {
		cfg.Endpoints = []string{"unix://" + o.socket}
	}
	if err := etcd.Diagnose(ctx, cfg); err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	client, err := etcd.Open(cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	s := &snapshot{client: client, prefix: cfg.Prefix, report: errOut}
	folder := filepath.Dir(file)
	if file == "-" {
		folder = os.TempDir()
	}
	if err := s.take(ctx, folder, file != "-"); err != nil {
		return err
	}
	defer s.file.Close()
	m, err := s.manifest(ctx, files)
	if err != nil {
		return err
	}
	encrypted, err := encryptedIn(ctx, client)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error {
		p := cli.StartProgress(ctx, errOut, "deriving the key", 0, cli.Size)
		defer func() { p.Stop() }()
		return writeArchive(w, m, recipients, func(part Part) (io.ReadCloser, error) {
			if part.Name == snapshotName {
				p.Stop()
				p = cli.StartProgress(ctx, errOut, "writing the backup", part.Size, cli.Size)
			}
			return openPart(part, s.file, p, files)
		})
	}
	if file == "-" {
		if err := write(cli.Raw(out)); err != nil {
			return fmt.Errorf("write backup: %w", err)
		}
		out = errOut
	} else if err := writeFile(file, write); err != nil {
		return err
	}
	printMade(out, file, m, len(recipients) > 0)
	if len(encrypted) > 0 {
		fmt.Fprintf(out, "objects are encrypted, %s: keep the file of --encryption-provider-config, its keys and its KMS; a restored installation needs them\n", describeEncrypted(encrypted))
	}
	return nil
}

func printMade(out io.Writer, file string, m *Manifest, encrypted bool) {
	kind := ""
	if encrypted {
		kind = "encrypted "
	}
	if file == "-" {
		file = "standard output"
	}
	fmt.Fprintf(out, "%sbackup of %d objects in %s\n", kind, m.total(), file)
	printPoint(out, m)
	if !m.has(pkiFolder) {
		fmt.Fprintln(out, "no keys are in it: --pki-dir names their folder")
	}
	if m.total() == 0 {
		fmt.Fprintf(out, "etcd has no keys below %s: is --etcd-prefix another one?\n", m.Etcd.Prefix)
	}
}

func printPoint(out io.Writer, m *Manifest) {
	fmt.Fprintf(out, "  point in time  %s\n  revision       %d\n", m.Time.Format(timeFormat), m.Etcd.Revision)
}

var errNoKeys = errors.New("it has no files")

// readFiles returns the content of the small files by the name of their part.
func readFiles(pkiDir, config string) (map[string][]byte, error) {
	files := map[string][]byte{}
	if pkiDir != "" {
		entries, err := os.ReadDir(pkiDir)
		if err != nil {
			return nil, fmt.Errorf("read keys: %w", err)
		}
		for _, e := range entries {
			if !e.Type().IsRegular() {
				continue
			}
			if files[pkiFolder+e.Name()], err = readSmall(filepath.Join(pkiDir, e.Name())); err != nil {
				return nil, err
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("read keys: %s: %w", pkiDir, errNoKeys)
		}
	}
	if config != "" {
		data, err := readSmall(config)
		if err != nil {
			return nil, fmt.Errorf("--config: %w", err)
		}
		files[configName] = data
	}
	return files, nil
}

func readSmall(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxSmall {
		return nil, fmt.Errorf("%s has more than %d MiB: it is no key, certificate or configuration", file, maxSmall>>20)
	}
	return os.ReadFile(file)
}
