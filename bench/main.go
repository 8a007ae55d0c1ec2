// Command bench measures a Portico installation on this machine against
// yardsticks of the same run.
//
// An absolute rate says as much about the machine as about the servers, so each
// measurement takes turns with a yardstick:
//
//   - the zero-work chain for GET, LIST and watch: a bare httputil.ReverseProxy
//     before a server that answers ready bytes of the same size, HTTP/2 over TLS
//     on both hops, each in its own process;
//   - raw etcd for create: transactions that create keys of the same size in the
//     etcd of the installation;
//   - a bare httputil.ReverseProxy for the gateway as a proxy ("bench rates").
//
// Answers are checked by status and length and are not decoded, so that the
// clients take little CPU from the servers that share the machine.
//
// Runs in: nothing else; a test tool.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal ends the process at once.
	context.AfterFunc(ctx, stop)
	root := newRoot()
	root.AddCommand(newRatesCommand(), newRestartCommand(), newCostsCommand(), newObjectsCommand(), newManyCommand(), newSecurityCommand(), newEncryptionCommand(), newChildCommand("chain-server", serveBytes), newChildCommand("chain-proxy", serveProxy),
		newChildCommand(roleStaticServer, serveStatic))
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

const example = `  # everything, against a new installation with empty data
  bench --portico ./portico

  # against the "portico up" that runs on this machine
  bench --data-dir ~/.local/share/portico

  # GET and LIST of fewer objects, one round
  bench --portico ./portico --only get,list --objects 1000 --rounds 1

  # the latency of watch events at 50 updates a second
  bench --portico ./portico --only watch --updates 50

  # pods in the core server as well
  bench --portico ./portico --also pods --objects 10000 --size 6000

  # with CPU profiles of every process (with --data-dir, start "portico up" with --profiling)
  bench --portico ./portico --profile ./profiles
  go tool pprof -top -cum ./profiles/get-*-gateway.pprof`

func newRoot() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "bench --portico PROGRAM | --data-dir FOLDER | --kubeconfig FILE",
		Short: "Measure an installation against yardsticks of the same run",
		Long: "Measure create, GET, LIST, watch and CustomResourceDefinitions over TLS and HTTP/2, in turns with a proxy and a server\n" +
			"that do no work, and with raw etcd. The objects are created in a new namespace and new API groups and deleted at the\n" +
			"end. Progress is written to standard error, the report to standard output.",
		Example:       example,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			// Leave CPU to the servers: collect garbage less often, run on
			// fewer processors.
			debug.SetGCPercent(400)
			runtime.GOMAXPROCS(o.threads)
			return measure(cmd.Context(), &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	o.add(cmd.Flags())
	return cmd
}
