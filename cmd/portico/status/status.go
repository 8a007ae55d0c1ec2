package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
)

const example = `  # everything on one screen
  portico status

  # the installation of portico up with its data there
  portico status --data-dir=./data

  # for a program; the exit code says whether all is well
  portico status -o json

  # again every two seconds
  portico status --watch`

// watchEvery is the pause between two pictures of --watch.
const watchEvery = 2 * time.Second

type options struct {
	inspect.Flags
	watch bool
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show an installation at a glance: processes, leaders, etcd, APIs",
		Long: "Show what runs and in which version, which process leads which election, size and health of etcd, certificates, APIs\n" +
			"and Backends that are down and why, and the slowest, busiest and refused requests since the gateway started. It asks\n" +
			"one gateway; on the machine of portico up also its processes. What the user may not read is named with the right that\n" +
			"it needs. Exit code 0 means that all is well, 1 that something is not, or could not be read.",
		Example: example,
	}
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "show it again every 2 seconds until Ctrl-C")
	return o.Command(cmd, o.run)
}

func (o *options) run(ctx context.Context, w, warnings io.Writer) error {
	if o.watch && o.Out.Raw() {
		return errors.New("--watch is for the screen: it has no effect with -o json or yaml; leave one of them out")
	}
	gateway, local, err := o.Open(warnings)
	if err != nil {
		return err
	}
	for {
		s := read(ctx, gateway, local)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := o.print(w, s); err != nil {
			return err
		}
		if !o.watch {
			return s.err()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

func (o *options) print(w io.Writer, s *Status) error {
	if o.Out.Raw() {
		document, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("encode status: %w", err)
		}
		return o.Out.PrintRaw(w, document)
	}
	if o.watch && cli.IsTerminal(w) {
		fmt.Fprint(w, cli.Clear())
	}
	return (&printer{w: w, paint: cli.Colored(w), wide: o.Out == cli.OutputWide, now: time.Now()}).status(s)
}

// err is the error of a command that shows an installation with problems.
func (s *Status) err() error {
	switch n := len(s.Problems); n {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("not healthy: %s", s.Problems[0])
	default:
		return fmt.Errorf("not healthy: %d problems: %s", n, strings.Join(s.Problems, "; "))
	}
}
