package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Processes are the processes that have configuration.
type Processes struct {
	// New makes the commands of all processes anew. Their names are those of sections, their flags
	// what sections may have.
	New func() []*cobra.Command
	// CheckValue refuses a value of a flag that could not work.
	CheckValue func(*pflag.Flag) error
}

// commands are those of all processes, made anew.
type commands struct {
	of         []*cobra.Command
	checkValue func(*pflag.Flag) error
}

func (p Processes) commands() commands { return commands{p.New(), p.CheckValue} }

// named returns the command of a process, nil if there is none of the name.
func (c commands) named(name string) *cobra.Command {
	for _, cmd := range c.of {
		if cmd.Name() == name {
			return cmd
		}
	}
	return nil
}

// checkName refuses the name of no process.
func (c commands) checkName(name string) error {
	if c.named(name) == nil {
		return fmt.Errorf("%q: must be one of %s", name, strings.Join(c.names(), ", "))
	}
	return nil
}

func (c commands) names() (out []string) {
	for _, cmd := range c.of {
		out = append(out, cmd.Name())
	}
	return out
}

// with returns the names of the processes that have a flag.
func (c commands) with(flag string) (out []string) {
	for _, cmd := range c.of {
		if settable(cmd.Flags().Lookup(flag)) {
			out = append(out, cmd.Name())
		}
	}
	return out
}

// settable reports whether files may set the flag, which may be nil.
func settable(f *pflag.Flag) bool {
	return f != nil && !slices.Contains([]string{"config", "help", "help-all"}, f.Name)
}

// check returns the first problem of the file.
func (f *File) check(all commands) error {
	for _, err := range f.problems(all) {
		return err
	}
	return nil
}

// Problems returns what a process of this version would refuse in a file, which it names.
func Problems(path string, processes Processes) []error {
	file, err := Load(path)
	if err != nil {
		return []error{err}
	}
	if out := file.problems(processes.commands()); len(out) > 0 {
		return out
	}
	if err := (&validation{processes: processes, file: file}).check(); err != nil {
		return []error{err}
	}
	return nil
}

// problems checks every section, flag and value, as the processes would. It sets flags of the commands.
func (f *File) problems(all commands) (out []error) {
	known := append([]string{All}, all.names()...)
	for _, section := range slices.Sorted(maps.Keys(f.sections)) {
		if !slices.Contains(known, section) {
			out = append(out, f.errorf(section, "there is no such section; there are %s", strings.Join(known, ", ")))
			continue
		}
		for _, flag := range slices.Sorted(maps.Keys(f.sections[section])) {
			if err := f.checkFlag(all, section, flag); err != nil {
				out = append(out, err)
			}
		}
	}
	return out
}

func (f *File) checkFlag(all commands, section, flag string) error {
	having := all.with(flag)
	switch {
	case flag == "config":
		return f.Errorf(section, flag, "a file cannot name another one; remove it")
	case len(having) == 0:
		return f.Errorf(section, flag, "no process has the flag --%s; portico config schema lists them", flag)
	case section != All && !slices.Contains(having, section):
		return f.Errorf(section, flag, "portico %s has no flag --%s; of the processes %s has it", section, flag, strings.Join(having, ", "))
	}
	for _, cmd := range all.of {
		target := cmd.Flags().Lookup(flag)
		if target == nil || section != All && section != cmd.Name() {
			continue
		}
		if err := checkForm(target, f.sections[section][flag]); err != nil {
			return f.Errorf(section, flag, "%w", err)
		}
		if err := setFlag(cmd.Flags(), target, f.Values(section, flag)); err != nil {
			return f.Errorf(section, flag, "%w", err)
		}
		if err := all.checkValue(target); err != nil {
			return f.Errorf(section, flag, "%w", err)
		}
	}
	return nil
}

// form is how values of a type of flag are written in a file.
type form struct {
	tag    string // of YAML
	schema string // type of JSON schema
	want   string // for errors
}

func formOf(f *pflag.Flag) form {
	switch f.Value.Type() {
	case "bool":
		return form{"!!bool", "boolean", "must be true or false"}
	case "int", "int64", "uint", "int32Slice":
		return form{"!!int", "integer", "must be a whole number"}
	case "float32", "float64":
		return form{"!!float", "number", "must be a number"}
	case "duration":
		return form{"!!str", "string", "must be a time with its unit, such as 90s or 2h"}
	}
	return form{"!!str", "string", "must be text; set it in quotes"}
}

// checkForm checks that a value is written as values of the flag are: a scalar of its type, or for
// a flag of several values a list of them.
func checkForm(f *pflag.Flag, node *yaml.Node) error {
	want := formOf(f)
	if node.Kind == yaml.SequenceNode {
		if _, ok := f.Value.(pflag.SliceValue); !ok {
			return fmt.Errorf("takes one value, not a list")
		}
		for _, item := range node.Content {
			if item = resolve(item); item.Kind != yaml.ScalarNode || item.Tag != want.tag {
				return fmt.Errorf("line %d: an item of the list %s", item.Line, want.want)
			}
		}
		return nil
	}
	number := want.tag == "!!float" && node.Tag == "!!int"
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		return fmt.Errorf("has no value; give one or remove it")
	case node.Kind != yaml.ScalarNode || node.Tag != want.tag && !number:
		return fmt.Errorf("%q: %s", node.Value, want.want)
	}
	return nil
}

// setFlag sets a flag to values, in place of its default.
func setFlag(fs *pflag.FlagSet, f *pflag.Flag, values []string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok && len(values) == 0 {
		f.Changed = true
		return list.Replace(nil)
	}
	for _, value := range values {
		if err := fs.Set(f.Name, value); err != nil {
			switch f.Value.Type() {
			case "string", "stringSlice", "stringArray", "gates":
				return fmt.Errorf("%q: %w", value, cause(err))
			}
			return fmt.Errorf("%q: %s", value, formOf(f).want)
		}
	}
	return nil
}
