package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"portico/cmd/internal/datadir"
	"portico/cmd/portico/cli"
)

const restoreExample = `  # a new installation
  portico restore portico.backup --data-dir=./restored
  portico up --data-dir=./restored

  # an etcd of your own: the snapshot, the keys, and what to do with them
  portico restore portico.backup --snapshot-to=snapshot.db --pki-dir=./pki

  # what the database of a damaged installation has
  portico restore --from-data-dir=./broken --data-dir=./restored`

// defaultBump is larger than the number of writes that any installation does between a backup and
// its restoration.
const defaultBump = 1_000_000_000

// restoration has the flags of `portico restore`.
type restoration struct {
	file               string // "" with from
	dataDir, from      string
	snapshotTo, pkiDir string
	bump               uint64
	compact            bool
	keys               identityFlags
	out, errOut        io.Writer
	manifest           *Manifest
	files              map[string][]byte // the small ones, by part
}

// NewRestore returns the command.
func NewRestore() *cobra.Command {
	var r restoration
	cmd := &cobra.Command{
		Use:   "restore FILE --data-dir=NEW",
		Short: "Make a new installation from a backup",
		Long: `Make a new installation from a backup. The data folder must be empty. Objects, keys, certificates and the configuration file are
those of the backup, so kubeconfigs and tokens of before are good. The revision is raised and everything before is compacted:
clients that have seen later objects are told that their resource versions are too old, and list again.`,
		Example: restoreExample,
		Args:    cli.Arguments(0, 1, "portico.backup --data-dir=NEW"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				r.file = args[0]
			}
			if err := r.check(cmd.Flags().Changed("bump-revision")); err != nil {
				return err
			}
			r.out, r.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return r.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&r.dataDir, "data-dir", "", "data `folder` of the new installation; it must be empty, and is made if needed")
	r.keys.add(flags)
	flags.StringVar(&r.from, "from-data-dir", "", "restore what the database in this data `folder` has, instead of a backup: for a damaged or lost write-ahead log. Writes of the last tenth of a second before its end may be missing")
	flags.StringVar(&r.snapshotTo, "snapshot-to", "", "write the snapshot of etcd to this `file` for an etcd of your own, instead of making a data folder")
	flags.StringVar(&r.pkiDir, "pki-dir", "", "with --snapshot-to, write keys and certificates to this `folder`, which must be empty (default: leave them out)")
	flags.Uint64Var(&r.bump, "bump-revision", defaultBump, "`number` added to etcd's revision; more than the writes since the backup. Larger by as much again for another restoration of the same backup")
	flags.BoolVar(&r.compact, "mark-compacted", true, "compact all revisions up to the new one; false with --bump-revision=0 only")
	return cmd
}

// check returns an error for flags that do not go together.
func (r *restoration) check(bumpGiven bool) error {
	switch {
	case (r.file == "") == (r.from == ""):
		return errors.New("name either a backup, as in: portico restore portico.backup --data-dir=NEW, or --from-data-dir; see portico restore --help")
	case (r.dataDir == "") == (r.snapshotTo == ""):
		return errors.New("name either --data-dir, the folder of a new installation, or --snapshot-to, a file for an etcd of your own")
	case r.from != "" && r.snapshotTo != "":
		return errors.New("--snapshot-to applies to a backup, not to --from-data-dir")
	case r.pkiDir != "" && r.snapshotTo == "":
		return errors.New("--pki-dir applies to --snapshot-to; with --data-dir keys go to pki/ in it")
	case r.snapshotTo != "" && (bumpGiven || !r.compact):
		return errors.New("--bump-revision and --mark-compacted do not apply to --snapshot-to: give them to etcdutl")
	case r.compact != (r.bump > 0) && (bumpGiven || !r.compact):
		return errors.New("--bump-revision=0 and --mark-compacted=false go together: etcd compacts what it bumps")
	case r.bump > 1<<62:
		return fmt.Errorf("--bump-revision %d: at most %d", r.bump, uint64(1<<62))
	}
	return nil
}

func (r *restoration) run(ctx context.Context) error {
	if r.snapshotTo != "" {
		return r.extract(ctx)
	}
	if err := checkEmpty(r.dataDir, "--data-dir"); err != nil {
		return err
	}
	dir, err := datadir.Open(r.dataDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// The folder of etcd gets its name at the end, so that a restoration that was killed leaves
	// no half of one.
	work := dir.File("etcd.restoring")
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	defer os.RemoveAll(work)
	member, err := r.restoreEtcd(ctx, dir, work)
	if err != nil {
		return err
	}
	if err := r.writeFiles(dir.File(datadir.PKIFolder), dir.File("portico.yaml")); err != nil {
		return err
	}
	if err := os.Rename(member.folder, dir.File("etcd")); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	if err := syncFolder(dir.Path); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	r.printRestored(dir, member)
	return nil
}

func (r *restoration) printRestored(dir *datadir.Dir, member *restored) {
	if r.from == "" {
		fmt.Fprintf(r.out, "restored %d objects as of %s\n", member.objects, r.manifest.Time.Format(timeFormat))
	} else {
		fmt.Fprintf(r.out, "restored %d objects from the database of %s\n", member.objects, r.from)
	}
	fmt.Fprintf(r.out, "  revision  %d, now %d\n", r.manifest.Etcd.Revision, member.revision)
	start := "portico up --data-dir=" + cli.ShellQuote(dir.Path)
	if r.files[configName] != nil {
		start += " --config=" + cli.ShellQuote(dir.File("portico.yaml"))
	}
	if len(member.encrypted) > 0 {
		fmt.Fprintf(r.out, "objects are encrypted, %s: start with the --encryption-provider-config of before, which has these keys; without it they cannot be read\n", describeEncrypted(member.encrypted))
		if r.files[configName] == nil {
			start += " --encryption-provider-config=FILE"
		}
	}
	if !r.manifest.has(pkiFolder) && r.from == "" {
		fmt.Fprintln(r.out, "the backup has no keys: portico up makes new ones, and clients need a new kubeconfig")
	}
	fmt.Fprintln(r.out, "start it:\n  "+start)
}

// extract writes the parts of a backup for an etcd of the user's.
func (r *restoration) extract(ctx context.Context) error {
	if r.pkiDir != "" {
		if err := checkEmpty(r.pkiDir, "--pki-dir"); err != nil {
			return err
		}
	}
	if _, err := os.Lstat(r.snapshotTo); err == nil {
		return fmt.Errorf("--snapshot-to: %s exists", r.snapshotTo)
	}
	tmp := r.snapshotTo + ".tmp"
	defer os.Remove(tmp)
	if err := r.read(ctx, tmp, 1); err != nil {
		return err
	}
	if r.pkiDir != "" {
		if err := r.writeFiles(r.pkiDir, filepath.Join(r.pkiDir, "portico.yaml")); err != nil {
			return err
		}
	}
	if err := os.Rename(tmp, r.snapshotTo); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	fmt.Fprintf(r.out, "wrote the snapshot of %d objects to %s\n", r.manifest.total(), r.snapshotTo)
	printPoint(r.out, r.manifest)
	fmt.Fprintf(r.out, `with gateways, core and CRD servers stopped, on the machine of each new member of etcd (NAME, its PEER-URL, and ALL as in
NAME=PEER-URL,...):
  etcdutl snapshot restore %s --bump-revision=%d --mark-compacted --data-dir=NEW-FOLDER --name=NAME --initial-advertise-peer-urls=PEER-URL --initial-cluster=ALL
`, cli.ShellQuote(r.snapshotTo), r.bump)
	return nil
}

// checkEmpty returns an error for a folder that has something; what [datadir.Open] makes is
// nothing.
func checkEmpty(folder, flag string) error {
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", flag, err)
	}
	for _, e := range entries {
		if !slices.Contains([]string{"lock", "logs", "run", "etcd.restoring"}, e.Name()) {
			return fmt.Errorf("%s: %s is not empty, it has %s: name another folder, or move what it has away", flag, folder, e.Name())
		}
	}
	return nil
}

// writeFiles writes keys and certificates to a folder, and the configuration to a file.
func (r *restoration) writeFiles(pkiDir, config string) error {
	for name, data := range r.files {
		to := config
		if name != configName {
			to = filepath.Join(pkiDir, filepath.Base(name))
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		if err := os.WriteFile(to, data, 0o600); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}
