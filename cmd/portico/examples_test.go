package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// withoutExample are the commands that need no example in their usage.
var withoutExample = []string{"portico", "portico certs", "portico config", "portico version", "portico help"}

// Every command has examples, which parse as commands with their flags and arguments.
func TestExamples(t *testing.T) {
	for _, cmd := range allCommands(newRoot()) {
		if cmd.Example == "" {
			if !slices.Contains(withoutExample, cmd.CommandPath()) && !strings.HasPrefix(cmd.CommandPath(), "portico completion") {
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
	for _, bad := range []string{"portico nothing", "portico register billing --nothing", "portico unregister a b", "portico register x --wait=many"} {
		if takes(bad) == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// The examples of portico certs succeed and create every file that the examples of processes
// beside them name.
func TestCertsExamples(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	run := func(line string) {
		root := newRoot()
		root.SetArgs(strings.Fields(line)[1:])
		root.SetOut(io.Discard)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	run("portico certs init --data-dir=" + filepath.Join(os.Getenv("XDG_DATA_HOME"), "portico"))
	file := regexp.MustCompile(`-file=(for-\S+)`)
	for line := range strings.SplitSeq(strings.ReplaceAll(exampleOf(t, "certs", "issue", "server")+"\n"+exampleOf(t, "certs", "kubeconfig"), "\\\n", " "), "\n") {
		switch fields := strings.Fields(line); {
		case len(fields) == 3 && fields[0] == "cp":
			data, err := os.ReadFile(fields[1])
			if err != nil {
				t.Error(err)
			}
			if err := os.WriteFile(filepath.Join(fields[2], filepath.Base(fields[1])), data, 0o600); err != nil {
				t.Error(err)
			}
		case len(fields) > 1 && fields[0] == "portico" && fields[1] == "certs":
			run(line)
		}
		for _, m := range file.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
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

// exampleLines returns the calls of portico in an example, with continued lines joined.
func exampleLines(example string) (out []string) {
	for line := range strings.SplitSeq(strings.ReplaceAll(example, "\\\n", " "), "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "portico ") {
			line, _, _ = strings.Cut(line, " > ")
			out = append(out, line)
		}
	}
	return out
}

// takes parses a call without running it.
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

// exampleOf returns the examples of a command.
func exampleOf(t *testing.T, path ...string) string {
	t.Helper()
	cmd, _, err := newRoot().Find(path)
	if err != nil {
		t.Fatal(err)
	}
	return cmd.Example
}
