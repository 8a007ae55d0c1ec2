// Command load drives a running installation over TLS and HTTP/2 and says how
// fast it is, as a share of what the same machine could do at best.
//
// An absolute figure says as much about the machine, and what else runs on it,
// as about the servers. So the yardsticks are measured in the same run, round by
// round in turn with the work itself:
//
//   - the zero-work chain: this program, a bare reverse proxy and a bare server
//     that answers ready bytes of the same sizes, HTTP/2 over TLS on both hops,
//     in processes of their own as gateway and server are;
//   - raw etcd: transactions that create keys of the same size in the etcd of
//     the installation.
//
// Every answer is checked (status, size, events all there), but nothing is
// decoded, so that this program takes little of the cores that it shares with
// what it measures. The CPU that each process spent on one operation is in the
// report: on a busy machine it is steadier than any rate.
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
	// A second signal finds the default again: it ends the process at once.
	context.AfterFunc(ctx, stop)
	root := newRoot()
	root.AddCommand(newProxyCommand(), newRestartCommand(), newChainRole("chain-server", serveBytes), newChainRole("chain-proxy", serveProxy),
		newChainRole(roleBackend, serveStatic), newChainRole(roleBare, serveBare))
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "load: "+err.Error())
		os.Exit(1)
	}
}

const example = `  # everything, against an installation of its own on empty data
  load --portico ./portico

  # against the "portico up" that runs on this machine
  load --data-dir ~/.local/share/portico

  # reading only, less of it
  load --portico ./portico --only get,list --objects 1000 --rounds 1

  # how late deliveries are at a given rate of updates
  load --portico ./portico --only watch --updates 50

  # ConfigMaps as well: the core server
  load --portico ./portico --configmaps

  # with CPU profiles of every process ("portico up" needs --profiling for it)
  load --portico ./portico --profile ./profiles
  go tool pprof -top -cum ./profiles/get-*-gateway.pprof`

func newRoot() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "load --portico PROGRAM | --data-dir FOLDER | --kubeconfig FILE",
		Short: "Measure a running installation against what the machine could do at best",
		Long: "Measure a running installation: create, GET, LIST, watch and definitions, over TLS and HTTP/2, and in the same run\n" +
			"what a proxy and a server without any work reach, and raw etcd. What it makes lies in a namespace and API groups\n" +
			"of its own, and is deleted at the end. Progress goes to standard error, the report to standard output.",
		Example:       example,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			// What this program saves on collecting garbage, and on waking a
			// second thread for every piece that comes, is left to what it
			// measures.
			debug.SetGCPercent(400)
			runtime.GOMAXPROCS(o.threads)
			return measure(cmd.Context(), &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	o.add(cmd.Flags())
	return cmd
}
