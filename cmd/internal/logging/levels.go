package logging

import (
	"fmt"
	"log/slog"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Levels are the log levels of a process. They may be set while they are used.
type Levels struct {
	setting sync.Mutex // serializes setters
	current atomic.Pointer[levels]
}

// Process are the levels of this process.
var Process = NewLevels()

// levels is a state of Levels.
type levels struct {
	general slog.Level
	modules []module
	least   slog.Level // of general and modules
}

// module is an entry of --vmodule.
type module struct {
	pattern string
	level   slog.Level
}

// NewLevels returns the levels of --v=0 without --vmodule.
func NewLevels() *Levels {
	l := &Levels{}
	l.current.Store(&levels{})
	return l
}

// levelOf returns the log level of a value of --v.
func levelOf(verbosity int) slog.Level {
	switch {
	case verbosity > 0:
		return slog.LevelDebug
	case verbosity < 0:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// SetVerbosity sets the level of packages that --vmodule does not name, by a value of --v.
func (l *Levels) SetVerbosity(text string) error {
	v, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("log level %q: it must be a number", text)
	}
	l.set(func(to *levels) { to.general = levelOf(v) })
	return nil
}

// SetModules sets the levels of single packages, by a value of --vmodule: NAME=LEVEL,...
func (l *Levels) SetModules(text string) error {
	modules, err := parseModules(text)
	if err != nil {
		return err
	}
	l.set(func(to *levels) { to.modules = modules })
	return nil
}

func (l *Levels) set(change func(*levels)) {
	l.setting.Lock()
	defer l.setting.Unlock()
	next := *l.current.Load()
	change(&next)
	next.least = next.general
	for _, m := range next.modules {
		next.least = min(next.least, m.level)
	}
	l.current.Store(&next)
}

// parseModules reads a value of --vmodule.
func parseModules(text string) (out []module, err error) {
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		pattern, value, ok := strings.Cut(entry, "=")
		v, err := strconv.Atoi(value)
		if _, bad := path.Match(pattern, ""); !ok || pattern == "" || err != nil || bad != nil {
			return nil, fmt.Errorf("--vmodule: %q must have the form PACKAGE=LEVEL, as in upstream=2", entry)
		}
		out = append(out, module{pattern: pattern, level: levelOf(v)})
	}
	return out, nil
}

// of returns the level of the package that has the program counter. Of several entries that match,
// the first one counts.
func (l *levels) of(pc uintptr) slog.Level {
	if len(l.modules) == 0 || pc == 0 {
		return l.general
	}
	name := cachedPackageOf(pc)
	for _, m := range l.modules {
		if m.matches(name) {
			return m.level
		}
	}
	return l.general
}

// matches reports whether the pattern is that of a package: of its last element, or with a slash of
// as many last elements as the pattern has.
func (m module) matches(name string) bool {
	last := name
	for i, slashes := len(name)-1, strings.Count(m.pattern, "/"); i >= 0; i-- {
		if name[i] != '/' {
			continue
		}
		if slashes == 0 {
			last = name[i+1:]
			break
		}
		slashes--
	}
	ok, _ := path.Match(m.pattern, last)
	return ok
}
