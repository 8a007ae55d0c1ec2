// Command portico is an aggregating API gateway: one endpoint in front of many
// API servers. `portico up` runs a whole installation; each of its processes
// also runs alone.
//
// Its commands are in the folders below. They parse flags into the Config of packages.
// A failure is one line on standard error with its remedy, and exit code 1.
//
// Runs in: all processes.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"regexp"

	"github.com/spf13/cobra"

	"portico/cmd/portico/adopt"
	"portico/cmd/portico/backup"
	"portico/cmd/portico/certs"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/config"
	"portico/cmd/portico/doctor"
	"portico/cmd/portico/install"
	"portico/cmd/portico/logs"
	"portico/cmd/portico/man"
	"portico/cmd/portico/probe"
	"portico/cmd/portico/registration"
	"portico/cmd/portico/server"
	"portico/cmd/portico/status"
	"portico/cmd/portico/storage"
	"portico/cmd/portico/up"
	"portico/resource/serve/version"
)

// excerpt is what follows an error about a CEL expression: its line, and below that where in the line.
// The error has the expression and the numbers of both.
var excerpt = regexp.MustCompile(`\n \| .*\n \| [.．]*[\^＾]`)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), cli.StopSignals()...)
	// A second signal ends the process at once: it has the default handler again.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(cli.Screen{Writer: os.Stderr}, "portico: "+excerpt.ReplaceAllString(err.Error(), ""))
		os.Exit(1)
	}
}

// run executes one command line until it is done or ctx ends.
func run(ctx context.Context, args []string) error {
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return config.Explain(cmd, err)
}

// processes are the commands that serve, which configuration files are for.
var processes = config.Processes{
	New: func() []*cobra.Command {
		return []*cobra.Command{up.New(), server.NewGateway(), server.NewCore(), server.NewCRD(), server.NewEtcd()}
	},
	CheckValue: server.CheckValue,
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "portico",
		Short:         "A Kubernetes-style endpoint in front of many API servers",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cli.KnownCommand,
		RunE:          cli.ShowHelp,

		PersistentPreRunE:          config.Apply(processes),
		SuggestionsMinimumDistance: 2,
	}
	root.SetFlagErrorFunc(cli.WrongFlag)
	root.SetOut(cli.Screen{Writer: os.Stdout})
	root.SetErr(cli.Screen{Writer: os.Stderr})
	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, cmd := range commands {
			cmd.GroupID = id
		}
		root.AddCommand(commands...)
	}
	group("run", "Run servers:", processes.New()...)
	group("register", "Register servers with a gateway, and look at what is behind it:",
		registration.NewRegister(), registration.NewUnregister(), registration.NewBackends(), registration.NewRoutes(), registration.NewExplainRoute())
	group("operate", "Operate an installation:",
		status.New(), doctor.New(), doctor.NewUpgradeCheck(processes), logs.New(), probe.New(), certs.New(), install.New(), install.NewUninstall(), config.New(processes), backup.New(), backup.NewRestore(), adopt.New(), storage.New())
	root.AddCommand(man.New(), newVersion())
	root.Version = version.Info().GitVersion
	root.Flags().Bool("version", false, "print the version")
	root.SetVersionTemplate("portico {{.Version}}\n")
	cli.SetHelp(root)
	return root
}
