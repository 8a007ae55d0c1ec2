package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// withoutExample are commands that say all by their usage.
var withoutExample = []string{"portico", "portico certs", "portico version", "portico help"}

// Every command has examples, and each names a command that there is, with flags
// and arguments that it takes.
func TestExamples(t *testing.T) {
	for _, cmd := range allCommands(newRoot()) {
		if cmd.Example == "" {
			if !slices.Contains(withoutExample, cmd.CommandPath()) {
				t.Errorf("%s has no example", cmd.CommandPath())
			}
			continue
		}
		for _, line := range exampleLines(cmd.Example) {
			if err := takes(line); err != nil {
				t.Errorf("%s: %s: %v", cmd.CommandPath(), line, err)
			}
		}
	}
	for _, bad := range []string{"portico nothing", "portico register billing --nothing", "portico unregister a b", "portico register x --queue=many"} {
		if takes(bad) == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}

func allCommands(cmd *cobra.Command) []*cobra.Command {
	out := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		out = append(out, allCommands(sub)...)
	}
	return out
}

// exampleLines returns the calls of portico in an example, continued lines put
// together.
func exampleLines(example string) (out []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(example, "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "portico ") {
			line, _, _ = strings.Cut(line, " > ")
			out = append(out, line)
		}
	}
	return out
}

// takes parses a call, and does nothing of what it says.
func takes(line string) error {
	args := strings.Fields(strings.NewReplacer("'", "", `"`, "").Replace(line))[1:]
	cmd, rest, err := newRoot().Find(args)
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}
