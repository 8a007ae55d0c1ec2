package main

import (
	"encoding/json"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
	apiversion "k8s.io/apimachinery/pkg/version"

	"portico/cmd/portico/cli"
	"portico/resource/serve/version"
)

// versionInfo is what -o json and -o yaml print: the answer of /version, and the modules
// that are linked.
type versionInfo struct {
	apiversion.Info `json:",inline"`
	Modules         []moduleVersion `json:"modules"`
}

type moduleVersion struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

func newVersion() *cobra.Command {
	var output cli.OutputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Print the version of the Kubernetes API that is served, with Portico's own version as its build part, then the Go version
and the platform of the binary, and the commit that it was built from with its date. The Go toolchain records the commit in
binaries built with "go build" in a clone; "go run" leaves it out. -o wide, json and yaml have the versions of all Go modules
in the binary as well.`,
		Example: "  portico version\n  portico version -o wide",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := output.Check(); err != nil {
				return err
			}
			v := versionInfo{Info: version.Info(), Modules: modules()}
			if output.Raw() {
				document, err := json.Marshal(v)
				if err != nil {
					return err
				}
				return output.PrintRaw(cmd.OutOrStdout(), document)
			}
			commit := "unknown"
			if v.GitCommit != "" {
				commit = fmt.Sprintf("%s (%s, %s)", v.GitCommit, v.BuildDate, v.GitTreeState)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "portico %s %s %s\ncommit  %s\n", v.GitVersion, v.GoVersion, v.Platform, commit); err != nil || output != cli.OutputWide {
				return err
			}
			var rows [][]string
			for _, m := range v.Modules {
				rows = append(rows, []string{m.Path, m.Version})
			}
			return cli.PrintRows(cmd.OutOrStdout(), []string{"MODULE", "VERSION"}, rows)
		},
	}
	output.Add(cmd)
	return cmd
}

// modules returns what the Go toolchain recorded of the modules that are linked.
func modules() (all []moduleVersion) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, moduleVersion{m.Path, m.Version})
	}
	return all
}
