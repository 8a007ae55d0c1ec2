package config

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico/cmd/portico/cli"
)

// New returns the command portico config.
func New(processes Processes) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show and check the configuration of processes",
		Long: "Show and check the configuration of processes. The value of a flag is that of the command line, else that of the\n" +
			"environment variable PORTICO_ and its name (PORTICO_ETCD_SERVERS), else that of the file of --config, else its default.",
		Args: cli.KnownCommand,
		RunE: cli.ShowHelp,
	}
	cmd.AddCommand(newView(processes), newValidate(processes), newSchema(processes))
	return cmd
}

func newView(processes Processes) *cobra.Command {
	var path string
	var output cli.OutputFlag
	cmd := &cobra.Command{
		Use:   "view [COMMAND [-- FLAGS]]",
		Short: "Print the value of each flag of a process, and where it is from",
		Long: "Print the value of each flag of a process, of all processes without COMMAND, and where the value is from: flag, an\n" +
			"environment variable, the section of a file, or default. Passwords in URLs are not shown.",
		Example: `  # what "portico core --config=portico.yaml" would run with
  portico config view --config=portico.yaml core

  # with flags
  portico config view --config=portico.yaml core -- --event-ttl=2h

  # all processes, for programs
  portico config view --config=portico.yaml -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == cli.OutputWide {
				return fmt.Errorf("-o wide: must be json or yaml")
			}
			if err := output.Check(); err != nil {
				return err
			}
			names := processes.commands().names()
			if len(args) > 0 {
				if err := processes.commands().checkName(args[0]); err != nil {
					return err
				}
				names, args = args[:1], args[1:]
			}
			effective := map[string][]setting{}
			for _, name := range names {
				process, err := configured(processes, name, path, args)
				if err != nil {
					return err
				}
				effective[name] = settings(process)
			}
			return printSettings(cmd, output, names, effective)
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "PorticoConfiguration `file` (default: none)")
	output.Add(cmd)
	cmd.Flags().Lookup("output").Usage = "output `format`: json or yaml (default: a table)"
	return cmd
}

// setting is a flag of a process with its value.
type setting struct {
	Flag   string `json:"flag"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

func settings(process *cobra.Command) (out []setting) {
	process.Flags().VisitAll(func(f *pflag.Flag) {
		if settable(f) || f.Name == "config" {
			out = append(out, setting{f.Name, valueOf(f), SourceOf(f).Text})
		}
	})
	return out
}

// valueOf returns the value of a flag as it is written in files. It is no secret: keys and tokens are
// in files of their own, and URLs lose their passwords.
func valueOf(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		out := []string{}
		for _, item := range list.GetSlice() {
			out = append(out, WithoutPasswords(item))
		}
		return out
	}
	text := WithoutPasswords(f.Value.String())
	if formOf(f).schema != "string" {
		return json.RawMessage(text) // true, 3, 0.5
	}
	return text
}

// passwords matches the user information of a URL.
var passwords = regexp.MustCompile(`://([^/@:\s]*):[^/@\s]*@`)

// WithoutPasswords returns a text in which URLs have no passwords.
func WithoutPasswords(text string) string { return passwords.ReplaceAllString(text, "://$1:xxxxx@") }

func printSettings(cmd *cobra.Command, output cli.OutputFlag, names []string, effective map[string][]setting) error {
	if output.Raw() {
		data, err := json.Marshal(effective)
		if err != nil {
			return err
		}
		return output.PrintRaw(cmd.OutOrStdout(), data)
	}
	var rows [][]string
	for _, name := range names {
		for _, s := range effective[name] {
			value := fmt.Sprintf("%s", s.Value)
			if list, ok := s.Value.([]string); ok {
				value = strings.Join(list, ",")
			}
			rows = append(rows, []string{name, s.Flag, cli.OrNone(cli.OneLine(value)), s.Source})
		}
	}
	return cli.PrintRows(cmd.OutOrStdout(), []string{"PROCESS", "FLAG", "VALUE", "SOURCE"}, rows)
}

func newValidate(processes Processes) *cobra.Command {
	v := validation{processes: processes}
	cmd := &cobra.Command{
		Use:   "validate FILE [COMMAND [-- FLAGS]]",
		Short: "Check a configuration file as the processes do",
		Long: "Check a configuration file as the processes do before they start: sections, flags, values, flags that need or exclude\n" +
			"each other, and the files that they name, where these exist on this machine. The audit log and other files that\n" +
			"processes write are left alone.\n\n" +
			"Without COMMAND it is checked as portico up does; without a section up, and with --etcd-servers for processes that\n" +
			"have a section, as these processes do, whose certificates and keys may be given on their command lines. With COMMAND\n" +
			"it is checked as that process does, with FLAGS on its command line.",
		Example: `  portico config validate portico.yaml

  # the files that it names must exist
  portico config validate --files portico.yaml

  # for a process that gets more flags
  portico config validate portico.yaml core -- --etcd-servers=https://etcd-0:2379`,
		Args: cli.Arguments(1, math.MaxInt, "portico.yaml"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if v.file, err = Load(args[0]); err != nil {
				return err
			}
			if len(args) > 1 {
				if err := processes.commands().checkName(args[1]); err != nil {
					return err
				}
				v.process, v.flags = args[1], args[2:]
			}
			if err := v.file.check(processes.commands()); err != nil {
				return err
			}
			if v.files {
				if err := v.file.checkFiles(processes); err != nil {
					return err
				}
			}
			if err := v.check(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", args[0])
			return err
		},
	}
	cmd.Flags().BoolVar(&v.files, "files", false, "check also that the files that it names exist")
	return cmd
}

// written are flags of files that processes make.
var written = []string{"access-log", "audit-log-path", "kubeconfig"}

// checkFiles checks that the files that are read can be read.
func (f *File) checkFiles(processes Processes) error {
	for _, process := range processes.New() {
		for section := range f.sections {
			for flag := range f.sections[section] {
				target := process.Flags().Lookup(flag)
				if target == nil || slices.Contains(written, flag) {
					continue
				}
				kind, _ := pflag.UnquoteUsage(target)
				if kind != "file" && kind != "name=file" {
					continue
				}
				for _, path := range f.Values(section, flag) {
					if _, after, named := strings.Cut(path, "="); named && kind == "name=file" {
						path = after
					}
					file, err := os.Open(path)
					if err != nil {
						return f.Errorf(section, flag, "%w", err)
					}
					file.Close()
				}
			}
		}
	}
	return nil
}

func newSchema(processes Processes) *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON schema of configuration files",
		Example: "  portico config schema > portico-configuration.schema.json",
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := Schema(processes)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
}
