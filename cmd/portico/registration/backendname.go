package registration

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"portico/cmd/portico/cli"
)

// backendName checks that a command has at least and at most one argument, the name of a
// Backend.
func backendName(least int, flags string) cobra.PositionalArgs {
	return cobra.MatchAll(cli.Arguments(least, 1, strings.TrimSpace("billing "+flags)), func(_ *cobra.Command, args []string) error {
		for _, name := range args {
			if problems := content.IsPathSegmentName(name); name == "" || len(problems) > 0 {
				return fmt.Errorf("%q: not the name of a backend: %s", name, strings.Join(append(problems, "it is as in billing or billing.example.com"), "; "))
			}
		}
		return nil
	})
}
