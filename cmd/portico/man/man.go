// Package man has the command that writes man pages: portico man.
//
// Runs in: portico man.
package man

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"portico/cmd/portico/cli"
	"portico/resource/serve/version"
)

// New returns the command.
func New() *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write a man page for each command",
		Long:    "Write a man page for each command into a folder, which is made if needed: portico.1, portico-up.1 and so on.",
		Example: "  portico man ~/.local/share/man/man1\n  man portico-up",
		Args:    cli.Arguments(1, 1, "~/.local/share/man/man1"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // a date
			header := &doc.GenManHeader{Section: "1", Source: "portico " + version.Info().GitVersion, Manual: "Portico"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write man pages: %w", err)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %s/portico.1 and a page for each command\n", args[0])
			return err
		},
	}
}
