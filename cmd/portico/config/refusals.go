package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"portico/cmd/portico/cli"
)

// Refusals are why a process does not start with its flags and with the files that they name, at least one. Its text is
// the text of the first one. PreRunE of the command of a process returns them.
type Refusals []error

func (r Refusals) Error() string   { return r[0].Error() }
func (r Refusals) Unwrap() []error { return r }

// Refused returns Refusals of the errors that are not nil; nil without any.
func Refused(errs ...error) error {
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) == 0 {
		return nil
	}
	return Refusals(errs)
}

// RefusalsOf returns an error of PreRunE as Refusals.
func RefusalsOf(err error) Refusals {
	var all Refusals
	if !errors.As(err, &all) && err != nil {
		return Refusals{err}
	}
	return all
}

// MissingError refuses flags that need one of others beside them.
type MissingError struct {
	Flags []string // the others
	Err   error
}

func (e *MissingError) Error() string { return e.Err.Error() }
func (e *MissingError) Unwrap() error { return e.Err }

// credential is the name of a flag of a certificate, a key or an authority.
var credential = regexp.MustCompile(`(ca|cert|certificate|key)-?file$`)

// given reports whether the command line may give what the error misses: certificates and keys, whose paths are those
// of a machine.
func (e *MissingError) given() bool {
	return !slices.ContainsFunc(e.Flags, func(flag string) bool { return !credential.MatchString(flag) })
}

// validation is what portico config validate checks of a file.
type validation struct {
	processes Processes
	file      *File
	files     bool     // the files that it names must exist
	process   string   // for which it is; "": see validation.names
	flags     []string // of the process
}

// names returns the processes that the file is for: up, unless it has no section up and gives processes that run alone
// their etcd.
func (v *validation) names() (out []string) {
	if v.process != "" {
		return []string{v.process}
	}
	for _, name := range []string{"gateway", "core", "crd"} {
		if v.file.sections[name] != nil && v.file.section(name, "etcd-servers") != "" {
			out = append(out, name)
		}
	}
	if v.file.sections["up"] != nil || len(out) == 0 {
		return []string{"up"}
	}
	return out
}

// check returns the first thing that one of the processes refuses.
func (v *validation) check() error {
	for _, name := range v.names() {
		process, err := configured(v.processes, name, v.file.path, v.flags)
		if err != nil {
			return err
		}
		for _, err := range RefusalsOf(process.PreRunE(process, nil)) {
			if !v.tolerates(name, err) {
				return Explain(process, err)
			}
		}
	}
	return nil
}

// tolerates reports whether a refusal is of this machine, or of a command line that is not known.
func (v *validation) tolerates(name string, err error) bool {
	var missing *MissingError
	if v.process == "" && name != "up" && errors.As(err, &missing) && missing.given() {
		return true
	}
	// Upstream's readers of files return errors that wrap nothing.
	return !v.files && (errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), syscall.ENOENT.Error()))
}

// configured returns the command of a process with its flags set by args, the environment and the file at path ("":
// none).
func configured(processes Processes, name, path string, args []string) (*cobra.Command, error) {
	process := processes.commands().named(name)
	if err := process.ParseFlags(args); err != nil {
		return nil, cli.WrongFlag(process, err)
	}
	if rest := process.Flags().Args(); len(rest) > 0 {
		return nil, fmt.Errorf("%q: portico %s takes no arguments", rest[0], name)
	}
	if path != "" {
		if err := process.Flags().Set("config", path); err != nil {
			return nil, err
		}
	}
	_, err := apply(processes.commands(), process, os.Getenv)
	return process, err
}
