package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"portico/cmd/portico/cli"
	"portico/resource/serve/version"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of the Kubernetes API that is served, with Portico's own version as its build part, then the Go version
and the platform of the binary, and the commit that it was built from with its date. The Go toolchain records the commit in
binaries built with "go build" in a clone; "go run" leaves it out.`,
		Example: "  portico version",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := version.Info()
			commit := "unknown"
			if v.GitCommit != "" {
				commit = fmt.Sprintf("%s (%s, %s)", v.GitCommit, v.BuildDate, v.GitTreeState)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "portico %s %s %s\ncommit  %s\n", v.GitVersion, v.GoVersion, v.Platform, commit)
			return err
		},
	}
}
