package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"
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

// arguments checks that a command has between least and most arguments. The example,
// which follows the name of the command, is for messages.
func arguments(least, most int, example string) cobra.PositionalArgs {
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

var noArguments = arguments(0, 0, "")

// backendName checks that a command has at least and at most one argument, the name of a
// Backend.
func backendName(least int, flags string) cobra.PositionalArgs {
	return cobra.MatchAll(arguments(least, 1, strings.TrimSpace("billing "+flags)), func(_ *cobra.Command, args []string) error {
		for _, name := range args {
			if problems := content.IsPathSegmentName(name); name == "" || len(problems) > 0 {
				return fmt.Errorf("%q: not the name of a backend: %s", name, strings.Join(append(problems, "it is as in billing or billing.example.com"), "; "))
			}
		}
		return nil
	})
}

// wrongFlag adds to the error of a flag where the flags are described.
func wrongFlag(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}
