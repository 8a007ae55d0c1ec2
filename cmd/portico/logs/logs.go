package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portico/cmd/internal/datadir"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
)

const example = `  # all processes, merged by time
  portico logs --tail=20

  # the gateway, from now on
  portico logs gateway -f --tail=0

  # what happened in the last ten minutes to two of them
  portico logs core crd --since=10m`

// Processes have a log each.
var Processes = []string{"up", "etcd", "core", "crd", "gateway"}

// New returns the command.
func New() *cobra.Command {
	var folder inspect.Folder
	var since time.Duration
	var tail int
	var follow bool
	cmd := &cobra.Command{
		Use:   "logs [gateway|core|crd|etcd|up]...",
		Short: "Show the logs of the processes of portico up",
		Long: "Show the logs of an installation of portico up on this machine: of the processes that are named, or of all, merged by\n" +
			"time behind a column with the process. Files that were rotated come first. Processes that systemd runs by themselves\n" +
			"log to its journal: journalctl -u 'portico*'.",
		Example:   example,
		ValidArgs: Processes,
		Args:      known,
		RunE: func(cmd *cobra.Command, names []string) error {
			switch {
			case since < 0:
				return errors.New("--since must not be negative (0 means from the beginning)")
			case tail < -1:
				return errors.New("--tail must not be negative (-1 means all lines)")
			case tail > maxTail:
				return fmt.Errorf("--tail must not be above %d, since the lines are kept in memory (-1 means all lines)", maxTail)
			}
			if err := folder.Find(); err != nil {
				return err
			}
			sel := selection{tail: tail}
			if since > 0 {
				sel.since = time.Now().Add(-since)
			}
			err := run(cmd.Context(), cmd.OutOrStdout(), folder.File(datadir.LogsFolder), names, sel, follow)
			return cli.QuietIfStopped(cmd.Context(), err)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&follow, "follow", "f", false, "show lines as they come, also after the files are rotated, until Ctrl-C")
	flags.DurationVar(&since, "since", 0, "show lines of the last `time` only, such as 10m (default: all)")
	flags.IntVar(&tail, "tail", -1, "show the last `N` lines only (default: all)")
	folder.Add(cmd)
	return cmd
}

// maxTail bounds the lines in memory.
const maxTail = 100_000

func known(cmd *cobra.Command, names []string) error {
	for _, name := range names {
		if !slices.Contains(Processes, name) {
			return fmt.Errorf("%q: no such process; one of %s", name, strings.Join(Processes, ", "))
		}
	}
	return nil
}

func run(ctx context.Context, w io.Writer, folder string, names []string, sel selection, follow bool) error {
	logs, err := openAll(folder, names)
	defer func() {
		for _, s := range logs {
			s.close()
		}
	}()
	if err != nil {
		return err
	}
	sel.wide = len(names) != 1
	return logs.show(ctx, w, sel, follow)
}

// openAll opens the logs of processes; of all that have one if none is named.
func openAll(folder string, names []string) (logs merged, err error) {
	if len(names) == 0 {
		if names = processesOf(folder); len(names) == 0 {
			return nil, fmt.Errorf("no logs in %s: has portico up run with this --data-dir? Processes of systemd log to its journal: journalctl -u 'portico*'", folder)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		s, err := open(folder, name)
		if errors.Is(err, fs.ErrNotExist) {
			return logs, fmt.Errorf("%s has no log in %s; there are logs of %s", name, folder, cli.OrNone(processesOf(folder)...))
		}
		if err != nil {
			return logs, err
		}
		logs = append(logs, s)
	}
	return logs, nil
}

// Last returns the last n lines of all logs in the folder, each after the name of its process.
func Last(folder string, n int) (lines []string, err error) {
	logs, err := openAll(folder, nil)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, s := range logs {
			s.close()
		}
	}()
	err = logs.last(selection{tail: n}, func(l *line) error {
		lines = append(lines, l.process+": "+string(l.text))
		return nil
	})
	return lines, err
}
