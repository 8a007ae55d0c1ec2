package config

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"portico/cmd/internal/logging"
	"portico/cmd/portico/cli"
)

// followInterval is the time between two looks at the file.
const followInterval = 10 * time.Second

// Reloaded are the flags that change while a process runs.
var Reloaded = []string{"max-mutating-requests-inflight", "max-requests-inflight", "v", "vmodule"}

// setters set the flags of this process that are reloaded.
var setters = struct {
	sync.Mutex
	of map[string]func(string) error
}{of: map[string]func(string) error{"v": logging.Process.SetVerbosity, "vmodule": logging.Process.SetModules}}

// OnReload has set called with the values of a flag of Reloaded that change in the file of --config.
func OnReload(flag string, set func(value string) error) {
	setters.Lock()
	defer setters.Unlock()
	setters.of[flag] = set
}

// setter returns what sets a flag of this process; nil before OnReload.
func setter(flag string) func(string) error {
	setters.Lock()
	defer setters.Unlock()
	return setters.of[flag]
}

// given is what a file gives for a flag: the section, "" for none, and the values.
type given struct {
	section string
	values  []string
}

// follower compares the file with what the process runs with.
type follower struct {
	processes Processes
	process   string
	path      string
	last      string           // content or error of the last look
	running   map[string]given // by flag, of those that are neither on the command line nor in the environment
	defaults  map[string]string
}

func newFollower(processes Processes, cmd *cobra.Command, file *File) *follower {
	f := &follower{processes: processes, process: cmd.Name(), path: file.path, running: map[string]given{}, defaults: map[string]string{}}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if from := SourceOf(flag); settable(flag) && (from.Section != "" || from.Text == fromDefault) {
			f.running[flag.Name] = given{from.Section, file.Values(from.Section, flag.Name)}
			f.defaults[flag.Name] = flag.DefValue
		}
	})
	return f
}

// follow looks at the file until ctx ends.
func follow(ctx context.Context, f *follower) {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	hangups := make(chan struct{}, 1)
	cli.OnHangup(ctx, func() { hangups <- struct{}{} })
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f.look(slog.Default())
		case <-hangups:
			f.look(slog.Default())
		}
	}
}

// look reads the file. What has changed since takes effect if it can while the process runs; the
// rest is logged. A file that is invalid is logged once and changes nothing.
func (f *follower) look(log *slog.Logger) {
	data, err := os.ReadFile(f.path)
	content := string(data)
	if err != nil {
		content = err.Error()
	}
	if content == f.last {
		return
	}
	f.last = content
	var file *File
	if err == nil {
		file, err = parse(f.path, data)
	}
	if err == nil {
		err = file.check(f.processes.commands())
	}
	if err != nil {
		log.Error("the configuration file is not valid; what was read before stays in use", "err", err)
		return
	}
	f.compare(log, file)
}

func (f *follower) compare(log *slog.Logger, file *File) {
	var done, restart []string
	for _, name := range slices.Sorted(maps.Keys(f.running)) {
		section, old := file.section(f.process, name), f.running[name]
		next := given{section, file.Values(section, name)}
		if slices.Equal(next.values, old.values) {
			continue
		}
		up := f.process == "up" // the values of sections of its children are set by them
		set := setter(name)
		if !slices.Contains(Reloaded, name) || !up && set == nil || up && (next.section == f.process || old.section == f.process) {
			restart = append(restart, cmp.Or(section, old.section)+"."+name)
			continue
		}
		value := f.defaults[name]
		if len(next.values) > 0 {
			value = next.values[0]
		}
		f.running[name] = next
		if up {
			continue
		}
		if err := set(value); err != nil {
			log.Error("the configuration file has a value that is not valid", "flag", name, "err", err)
			continue
		}
		done = append(done, cmp.Or(section, old.section)+"."+name)
	}
	if len(done) > 0 {
		log.Info("configuration reloaded", "file", f.path, "changed", done)
	}
	if len(restart) > 0 {
		log.Warn("changes in the configuration file need a restart of the process", "file", f.path, "changed", restart)
	}
}
