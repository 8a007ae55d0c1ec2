package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"portico/resource/serve"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Print the version of the Kubernetes API that is served with Portico's own version as its build,\nthen the Go version and platform it was built for.",
		Example: "  portico version",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "portico %s %s %s/%s\n", serve.GitVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
