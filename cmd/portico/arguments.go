package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// showHelp is what a command does that only has commands of its own. Without it
// cobra would take a misspelt one for a wish for help, and say that all is well.
func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// knownCommand checks that a command that only has commands of its own is given none
// that it does not have.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		meant = fmt.Sprintf("; did you mean %q?", strings.Join(like, `" or "`))
	}
	return fmt.Errorf("unknown command %q for %q%s (%s --help has them all)", args[0], cmd.CommandPath(), meant, cmd.CommandPath())
}

// noArguments checks that a command that takes flags only is given nothing else.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q: %s takes flags and nothing else; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
}

// oneNameAtMost checks that a command has one argument or none.
func oneNameAtMost(cmd *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return fmt.Errorf("%q: there is one name at most, as in: %s %s; see %s --help", args[1], cmd.CommandPath(), args[0], cmd.CommandPath())
}

// someFiles checks that a command has arguments, files.
func someFiles(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return nil
	}
	return fmt.Errorf("the files are missing, as in: %s for-core/*.crt; see %s --help", cmd.CommandPath(), cmd.CommandPath())
}

// wrongFlag says where the flags are that there are.
func wrongFlag(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}
