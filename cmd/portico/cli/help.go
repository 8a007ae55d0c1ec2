package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	// helpColumns is the width of help.
	helpColumns = 130
	// fewFlags is the number of flags up to which --help shows all of a command.
	fewFlags = 20
)

// flagGroup is a heading of flags of commands with many flags, and the prefixes of their names.
type flagGroup struct {
	title    string
	prefixes []string
}

// flagGroups are in the order of help. The first match counts; flags of no other group are in the
// first one.
var flagGroups = []flagGroup{
	{"Serving", nil},
	{"Storage", []string{"etcd-", "data-dir", "quota-"}},
	{"Authentication", []string{"client-ca", "requestheader-", "service-account-", "api-audiences", "token-auth", "enable-bootstrap-", "anonymous-", "root-ca", "cluster-signing-"}},
	{"Authorization", []string{"authorization-"}},
	{"Servers behind the gateway", []string{"backend", "proxy-client-"}},
	{"The gateway, for servers behind it", []string{"gateway"}},
	{"Built-in kinds", []string{"service-", "event-", "kubelet-", "enable-admission", "disable-admission", "admission-", "default-", "controllers", "terminated-", "runtime-", "feature-"}},
	{"Limits and shutdown", []string{"request-timeout", "max-", "shutdown-", "goaway-", "discovery-grace"}},
	{"Audit", []string{"audit-"}},
	{"Logs, traces and profiling", []string{"access-log", "log-", "logs-", "tracing-", "profiling", "v"}},
}

// commonFlags are shown by --help of commands with many flags; the others by --help-all.
var commonFlags = []string{
	"config", "listen", "tls-san", "tls-cert-file", "tls-private-key-file", "data-dir", "kubeconfig",
	"etcd-servers", "etcd-cafile", "etcd-certfile", "etcd-keyfile", "backend", "client-ca-file", "requestheader-client-ca-file",
	"proxy-client-cert-file", "proxy-client-key-file", "gateway", "gateway-ca-file", "gateway-cert-file", "gateway-key-file",
	"service-account-issuer", "service-account-key-file", "service-account-signing-key-file", "audit-policy-file", "audit-log-path", "v",
}

// SetHelp gives root and the commands below it their help, with --help-all for what --help leaves
// out, and makes help and completion refuse what they do not know.
func SetHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { printHelp(cmd.OutOrStdout(), cmd) })
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = KnownCommand(cmd, rest)
			}
			if err != nil {
				return err
			}
			return cmd.Help()
		},
	})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root {
		completion.Args, completion.RunE = KnownCommand, ShowHelp
	}
	addHelpAll(root)
}

// addHelpAll adds --help-all to a command and those below it, and completes folders as such.
func addHelpAll(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if value, _ := pflag.UnquoteUsage(f); value == "folder" {
			_ = cmd.MarkFlagDirname(f.Name) // it exists
		}
	})
	f := cmd.Flags().VarPF(helpAll{cmd}, "help-all", "", "")
	f.NoOptDefVal, f.Hidden = "true", true
	for _, sub := range cmd.Commands() {
		addHelpAll(sub)
	}
}

// helpAll is the value of --help-all, which is --help with everything.
type helpAll struct{ cmd *cobra.Command }

func (h helpAll) String() string { return "false" }
func (h helpAll) Type() string   { return "bool" }

// Set implements pflag.Value.
func (h helpAll) Set(string) error { return h.cmd.Flags().Set("help", "true") }

// printHelp prints the help of a command.
func printHelp(w io.Writer, cmd *cobra.Command) {
	all := cmd.Flags().Changed("help-all")
	about := cmd.Long
	if about == "" {
		about = cmd.Short + "."
	}
	fmt.Fprintf(w, "%s\n\nUsage:\n  %s\n", strings.TrimSpace(about), usageOf(cmd))
	examples, moreExamples := cmd.Example, false
	if !all {
		examples, moreExamples = firstExamples(cmd)
	}
	if examples != "" {
		fmt.Fprintf(w, "\nExamples:\n%s\n", strings.TrimRight(examples, "\n"))
	}
	printCommands(w, cmd)
	hidden := printFlags(w, cmd.LocalFlags(), all)
	if more := leftOut(hidden, moreExamples); more != "" {
		fmt.Fprintf(w, "\n%s: %s --help-all\n", more, cmd.CommandPath())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nHelp for a command: %s COMMAND --help\n", cmd.CommandPath())
	}
}

func usageOf(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() && !cmd.HasParent() {
		return cmd.CommandPath() + " COMMAND"
	}
	if cmd.HasAvailableSubCommands() {
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

// firstExamples returns the examples that --help shows: all of a command with few flags, else the
// first one.
func firstExamples(cmd *cobra.Command) (text string, more bool) {
	if countFlags(cmd.LocalFlags()) <= fewFlags {
		return cmd.Example, false
	}
	first, _, more := strings.Cut(cmd.Example, "\n\n")
	return first, more
}

func countFlags(fs *pflag.FlagSet) (n int) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			n++
		}
	})
	return n
}

// printCommands prints the commands below cmd, by group.
func printCommands(w io.Writer, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	width := 0
	for _, sub := range cmd.Commands() {
		width = max(width, len(sub.Name()))
	}
	groups := append(slices.Clone(cmd.Groups()), &cobra.Group{Title: "Commands:"})
	if len(groups) > 1 {
		groups[len(groups)-1].Title = "Other commands:"
	}
	for _, group := range groups {
		var lines []string
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() && sub.GroupID == group.ID || sub.Name() == "help" && group.ID == "" {
				lines = append(lines, fmt.Sprintf("  %-*s  %s", width, sub.Name(), sub.Short))
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(w, "\n%s\n%s\n", group.Title, strings.Join(lines, "\n"))
		}
	}
}

// printFlags prints flags, under headings if there are many, and returns the number of those left
// out.
func printFlags(w io.Writer, fs *pflag.FlagSet, all bool) (hidden int) {
	if n := countFlags(fs); n == 0 {
		return 0
	} else if n <= fewFlags {
		fmt.Fprintf(w, "\nFlags:\n%s", fs.FlagUsagesWrapped(helpColumns))
		return 0
	}
	groups := make([]*pflag.FlagSet, len(flagGroups))
	for i := range groups {
		groups[i] = pflag.NewFlagSet("", pflag.ContinueOnError)
		groups[i].SortFlags = false
	}
	fs.VisitAll(func(f *pflag.Flag) {
		switch common := slices.Contains(commonFlags, f.Name); {
		case f.Name == "help" || f.Name == "help-all" || f.Hidden:
			return
		case !common && !all:
			hidden++
			return
		}
		groups[groupOf(f.Name)].AddFlag(f)
	})
	for i, group := range groups {
		if group.HasFlags() {
			fmt.Fprintf(w, "\n%s:\n%s", flagGroups[i].title, group.FlagUsagesWrapped(helpColumns))
		}
	}
	return hidden
}

// groupOf returns the index of the group of a flag.
func groupOf(name string) int {
	return max(0, slices.IndexFunc(flagGroups, func(g flagGroup) bool {
		return slices.ContainsFunc(g.prefixes, func(prefix string) bool {
			return strings.HasPrefix(name, prefix) && (prefix != "v" || name == "v" || name == "vmodule")
		})
	}))
}

// leftOut describes what --help does not show.
func leftOut(flags int, examples bool) string {
	switch {
	case flags > 0 && examples:
		return fmt.Sprintf("%d more flags, and more examples", flags)
	case flags > 0:
		return fmt.Sprintf("%d more flags", flags)
	case examples:
		return "More examples"
	}
	return ""
}
