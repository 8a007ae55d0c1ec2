package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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

// WrongFlag adds to the error of a flag the flag that may be meant, and where the flags are described.
func WrongFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if like := Nearest(unknown.GetSpecifiedName(), names); like != "" {
			return fmt.Errorf("%w; did you mean --%s? (see %s --help)", err, like, cmd.CommandPath())
		}
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// Nearest returns the one of names that is most like name, or "" if all differ too much.
func Nearest(name string, names []string) (nearest string) {
	least := max(1, len(name)/4) + 1
	for _, other := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(other)); d < least {
			least, nearest = d, other
		}
	}
	return nearest
}

// distance returns how many bytes have to be added, removed or replaced to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
