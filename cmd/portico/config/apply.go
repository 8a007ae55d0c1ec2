package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// AddFlag adds --config.
func AddFlag(fs *pflag.FlagSet) {
	fs.String("config", "", "PorticoConfiguration `file`, of which flags that are not given, nor set by environment variables, are taken. Read again when it changes")
}

// Sources of values, beside those that [Source.Text] has.
const (
	fromDefault = "default"
	fromFlag    = "flag"
)

// Source says where the value of a flag is from.
type Source struct {
	Text    string // default, flag, the name of a variable, or a file and the path in it
	Section string // of the file; else ""
}

// sourceKey is the key of a Source among the annotations of a flag.
const sourceKey = "portico.dev/source"

// SourceOf returns the source of a flag.
func SourceOf(f *pflag.Flag) Source {
	switch from := f.Annotations[sourceKey]; {
	case len(from) == 2:
		return Source{from[0], from[1]}
	case f.Changed:
		return Source{Text: fromFlag}
	}
	return Source{Text: fromDefault}
}

// Apply returns what cobra is to run before a command: for a process it sets the flags that are not
// on the command line, and follows the file until the context of the command ends.
func Apply(processes Processes) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if cmd.Parent() == nil || cmd.Parent() != cmd.Root() || cmd.Flags().Lookup("config") == nil {
			return nil
		}
		all := processes.commands()
		if all.named(cmd.Name()) == nil {
			return nil
		}
		file, err := apply(all, cmd, os.Getenv)
		if err != nil {
			return err
		}
		if cmd.Name() == "up" {
			if err := checkForeign(all, cmd, os.Getenv); err != nil {
				return err
			}
		}
		// What up's variables set reaches its children as flags.
		for _, process := range all.of {
			process.Flags().VisitAll(func(f *pflag.Flag) { os.Unsetenv(Variable(f.Name)) })
		}
		if file != nil {
			go follow(cmd.Context(), newFollower(processes, cmd, file))
		}
		return nil
	}
}

// Variable returns the environment variable of a flag.
func Variable(flag string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// apply sets flags by the environment, and the others by the file of --config, which it returns.
func apply(all commands, cmd *cobra.Command, getenv func(string) string) (file *File, err error) {
	if err := checkVariables(all, os.Environ()); err != nil {
		return nil, err
	}
	if err := applyEnvironment(cmd, getenv); err != nil {
		return nil, err
	}
	path := cmd.Flags().Lookup("config").Value.String()
	if path == "" {
		return nil, nil
	}
	if file, err = Load(path); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("--config: %w", err)
	} else if err != nil {
		return nil, err
	}
	if err := file.check(all); err != nil {
		return nil, err
	}
	return file, file.SetFlags(cmd)
}

// SetFlags sets the flags of a process that are not set yet by a file that is valid. A nil File sets none.
func (f *File) SetFlags(process *cobra.Command) (err error) {
	process.Flags().VisitAll(func(flag *pflag.Flag) {
		section := f.section(process.Name(), flag.Name)
		if flag.Changed || section == "" || err != nil {
			return
		}
		err = setFlag(process.Flags(), flag, f.Values(section, flag.Name))
		annotate(flag, Source{fmt.Sprintf("%s: %s.%s", f.path, section, flag.Name), section})
	})
	return err
}

func applyEnvironment(cmd *cobra.Command, getenv func(string) string) (err error) {
	set := func(f *pflag.Flag) {
		name := Variable(f.Name)
		value := getenv(name)
		if value == "" || f.Changed || err != nil || !settable(f) && f.Name != "config" {
			return
		}
		values := []string{value}
		if f.Value.Type() == "stringArray" {
			values = slices.DeleteFunc(strings.Split(value, "\n"), func(line string) bool { return line == "" })
		}
		if setErr := setFlag(cmd.Flags(), f, values); setErr != nil {
			err = fmt.Errorf("%s: %w", name, setErr)
		}
		annotate(f, Source{Text: name})
	}
	cmd.Flags().VisitAll(set)
	return err
}

// checkForeign refuses variables of flags that portico up lacks and a child of it has. A process that
// runs alone ignores them: processes may share their environment.
func checkForeign(all commands, cmd *cobra.Command, getenv func(string) string) (err error) {
	for _, process := range all.of {
		process.Flags().VisitAll(func(f *pflag.Flag) {
			if name := Variable(f.Name); err == nil && cmd.Flags().Lookup(f.Name) == nil && getenv(name) != "" {
				err = fmt.Errorf("%s: portico up has no flag --%s; set it in section %s of the file of --config", name, f.Name, process.Name())
			}
		})
	}
	return err
}

func annotate(f *pflag.Flag, from Source) {
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[sourceKey] = []string{from.Text, from.Section}
}

// Explain adds to the error of a command where the flags that it names were set: a variable, or a file
// and the path in it.
func Explain(cmd *cobra.Command, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	var from []string
	for _, m := range flagName.FindAllStringSubmatch(err.Error(), -1) {
		f := cmd.Flags().Lookup(m[1])
		if f == nil || len(f.Annotations[sourceKey]) == 0 {
			continue
		}
		if source := SourceOf(f).Text; !slices.Contains(from, source) && !strings.HasPrefix(err.Error(), source) {
			from = append(from, source)
		}
	}
	if len(from) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", strings.Join(from, ", "), err)
}

// flagName is a flag in a message.
var flagName = regexp.MustCompile(`--([a-z][a-z0-9-]*[a-z0-9]|v\b)`)

// cause returns the error of the value of a flag, without pflag's words around it.
func cause(err error) error {
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return invalid.Unwrap()
	}
	return err
}
