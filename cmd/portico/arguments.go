package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// showHelp runs a command that only has subcommands. Without it cobra would print
// help for a misspelt subcommand and exit with 0.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// knownCommand rejects unknown subcommands.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		meant = fmt.Sprintf("; did you mean %q?", strings.Join(like, `" or "`))
	}
	return fmt.Errorf("unknown command %q for %q%s (see %s --help)", args[0], cmd.CommandPath(), meant, cmd.CommandPath())
}

// noArguments rejects arguments.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q: %s takes no arguments; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
}

// oneNameAtMost accepts one argument or none.
func oneNameAtMost(cmd *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return fmt.Errorf("%q: only one name is allowed, as in: %s %s; see %s --help", args[1], cmd.CommandPath(), args[0], cmd.CommandPath())
}

// someFiles requires arguments.
func someFiles(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return fmt.Errorf("the files are missing, as in: %s for-core/*.crt; see %s --help", cmd.CommandPath(), cmd.CommandPath())
}

// wrongFlag adds to the error of a flag where the flags are described.
func wrongFlag(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}
