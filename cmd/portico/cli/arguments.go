package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// ShowHelp runs a command that only has subcommands. Without it cobra would print
// help for a misspelt subcommand and exit with 0.
func ShowHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// KnownCommand rejects unknown subcommands.
func KnownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		meant = fmt.Sprintf("; did you mean %q?", strings.Join(like, `" or "`))
	}
	return fmt.Errorf("unknown command %q for %q%s (see %s --help)", args[0], cmd.CommandPath(), meant, cmd.CommandPath())
}

// Arguments checks that a command has between least and most arguments. The example,
// which follows the name of the command, is for messages.
func Arguments(least, most int, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		usage := strings.TrimSpace(cmd.CommandPath() + " " + example)
		switch {
		case len(args) < least:
			return fmt.Errorf("an argument is missing, as in: %s; see %s --help", usage, cmd.CommandPath())
		case len(args) > most && most == 0:
			return fmt.Errorf("%q: %s takes no arguments; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
		case len(args) > most:
			return fmt.Errorf("%q: too many arguments; the form is: %s; see %s --help", args[most], usage, cmd.CommandPath())
		}
		return nil
	}
}

var NoArguments = Arguments(0, 0, "")

// WrongFlag adds to the error of a flag where the flags are described.
func WrongFlag(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}
