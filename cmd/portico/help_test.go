package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"portico/cmd/portico/cli"
)

// helpOf returns what a command line prints.
func helpOf(t *testing.T, line string) string {
	t.Helper()
	var out strings.Builder
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(strings.Fields(line)[1:])
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Errorf("%s: %v", line, err)
	}
	return out.String()
}

// --help of each command fits a screen and says how to see the rest; --help-all has every flag
// and every example.
func TestHelp(t *testing.T) {
	const screen, columns = 55, 150
	for _, cmd := range allCommands(newRoot()) {
		if strings.HasPrefix(cmd.CommandPath(), "portico completion ") {
			continue // cobra's
		}
		short, all := helpOf(t, cmd.CommandPath()+" --help"), helpOf(t, cmd.CommandPath()+" --help-all")
		if n := strings.Count(short, "\n"); n > screen {
			t.Errorf("%s --help has %d lines", cmd.CommandPath(), n)
		}
		for line := range strings.Lines(short) {
			if len(line) > columns {
				t.Errorf("%s --help: %d columns: %s", cmd.CommandPath(), len(line), line)
			}
		}
		if short != all && !strings.Contains(short, cmd.CommandPath()+" --help-all\n") {
			t.Errorf("%s --help does not say that there is more", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && !strings.Contains(all, "--"+f.Name+" ") && !strings.Contains(all, "--"+f.Name+"\n") {
				t.Errorf("%s --help-all lacks --%s", cmd.CommandPath(), f.Name)
			}
		})
		if !strings.Contains(all, strings.TrimRight(cmd.Example, "\n")) {
			t.Errorf("%s --help-all lacks examples", cmd.CommandPath())
		}
	}
}

// Completion knows commands, flags, values and folders.
func TestCompletion(t *testing.T) {
	for line, want := range map[string]string{
		"portico __complete ga":               "gateway\t",
		"portico __complete gateway --etcd-s": "--etcd-servers\t",
		"portico __complete backends -o ":     "yaml\n",
		"portico __complete up --data-dir=":   ":16\n", // folders
	} {
		args := strings.Split(line, " ")[1:]
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(args)
		if err := root.ExecuteContext(t.Context()); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v %q, want %q", line, err, out.String(), want)
		}
	}
}

// Everything that commands print passes a Screen.
func TestCommandsPrintToScreens(t *testing.T) {
	t.Parallel()
	for _, cmd := range allCommands(newRoot()) {
		for _, w := range []io.Writer{cmd.OutOrStdout(), cmd.ErrOrStderr()} {
			if _, ok := w.(cli.Screen); !ok {
				t.Errorf("%s prints to a %T", cmd.CommandPath(), w)
			}
		}
	}
}
