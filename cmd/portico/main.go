// Command portico is an aggregating API gateway: one endpoint in front of many
// API servers. `portico up` runs a whole installation; each of its processes
// also runs alone.
//
// The command parses flags into the Config of packages; packages do not read flags.
// A failure is one line on standard error with its remedy, and exit code 1.
//
// Runs in: gateway, core, crd, portico up.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"portico/cmd/internal/pace"
	"portico/cmd/internal/supervise"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once: it has the default handler again.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "portico: "+err.Error())
		os.Exit(1)
	}
}

// run executes one command line until it is done or ctx ends.
func run(ctx context.Context, args []string) error {
	root := newRoot()
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "portico",
		Short:         "A Kubernetes-style endpoint in front of many API servers",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		RunE:          showHelp,

		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(wrongFlag)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newUp(), newGateway(), newCore(), newCRD(), newEtcd(),
		newRegister(), newUnregister(), newBackends(), newRoutes(), newExplainRoute(), newCerts(), newVersion())
	return root
}

// serverProcess prepares a process that serves until ctx ends: its log, the pace
// of its garbage collector (see [pace.Keep]), and its end when the supervisor that
// may have started it is gone.
func serverProcess(ctx context.Context, verbosity int, work pace.Work) (*slog.Logger, error) {
	logLevel.Set(levelOf(verbosity))
	log := newLogger(os.Stderr, &logLevel)
	slog.SetDefault(log)
	// Upstream's engines log through klog. Their information is shown with -v only.
	klog.SetLogger(logr.FromSlogHandler(log.Handler()).V(1))
	go pace.Keep(ctx, work)
	// At once: the other processes of the supervisor end as well.
	return log, supervise.WatchLifeline(func() {
		log.Error("the supervisor is gone")
		os.Exit(1)
	})
}
