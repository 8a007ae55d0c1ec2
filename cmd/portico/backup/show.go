package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"portico/cmd/portico/cli"
)

const showExample = `  portico backup show portico.backup
  portico backup show portico.backup -o json`

func newShow() *cobra.Command {
	var output cli.OutputFlag
	var keys identityFlags
	cmd := &cobra.Command{
		Use:     "show FILE",
		Short:   "Show what a backup holds, from the manifest at its beginning",
		Example: showExample,
		Args:    cli.Arguments(1, 1, "portico.backup"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			var m *Manifest
			err := readFile(args[0], &keys, func(found *Manifest) error { m = found; return errEnough }, nil)
			if !errors.Is(err, errEnough) {
				return err
			}
			return showManifest(cmd.OutOrStdout(), m, output)
		},
	}
	cmd.Flags().SortFlags = false
	output.Add(cmd)
	keys.add(cmd.Flags())
	return cmd
}

// errEnough ends the reading of a backup after its manifest.
var errEnough = errors.New("the manifest is enough")

func showManifest(out io.Writer, m *Manifest, output cli.OutputFlag) error {
	if output.Raw() {
		document, err := json.Marshal(m)
		if err != nil {
			return err
		}
		return output.PrintRaw(out, document)
	}
	fmt.Fprintf(out, "made by portico %s (format version %d)\n", m.PorticoVersion, m.FormatVersion)
	printPoint(out, m)
	fmt.Fprintf(out, "  etcd           %s, cluster %s, keys below %s\n", m.Etcd.Version, m.Etcd.ClusterID, m.Etcd.Prefix)
	rows := [][]string{}
	for _, p := range m.Parts {
		rows = append(rows, []string{p.Name, strconv.FormatInt(p.Size, 10)})
	}
	if err := cli.PrintRows(out, []string{"PART", "BYTES"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, resource := range slices.Sorted(maps.Keys(m.Objects)) {
		rows = append(rows, []string{resource, strconv.FormatInt(m.Objects[resource], 10)})
	}
	return cli.PrintRows(out, []string{"RESOURCE", "OBJECTS"}, rows)
}

func newVerify() *cobra.Command {
	var keys identityFlags
	cmd := &cobra.Command{
		Use:     "verify FILE",
		Short:   "Read a whole backup and compare each part with its hash",
		Example: "  portico backup verify portico.backup",
		Args:    cli.Arguments(1, 1, "portico.backup"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var m *Manifest
			p := (*cli.Progress)(nil)
			err := readFile(args[0], &keys, func(found *Manifest) error {
				m, p = found, cli.StartProgress(cmd.Context(), cmd.ErrOrStderr(), "reading the backup", found.Parts[0].Size, cli.Size)
				return nil
			}, func(Part) (io.WriteCloser, error) { return nopCloser{p}, nil })
			if p != nil {
				p.Stop()
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is complete: %d parts, %d objects\n", args[0], len(m.Parts), m.total())
			printPoint(cmd.OutOrStdout(), m)
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	keys.add(cmd.Flags())
	return cmd
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// readFile is readArchive for a file, or for standard input if it is "-". Its errors name the file.
func readFile(file string, keys *identityFlags, manifest func(*Manifest) error, part func(Part) (io.WriteCloser, error)) error {
	f := os.Stdin
	if file != "-" {
		var err error
		if f, err = os.Open(file); err != nil {
			return fmt.Errorf("read backup: %w", err)
		}
		defer f.Close()
	}
	if err := readArchive(f, keys.identities, manifest, part); err != nil {
		return fmt.Errorf("read backup %s: %w", file, err)
	}
	return nil
}
