package server

import (
	"io"
	"log/slog"
	"strconv"

	"github.com/spf13/pflag"

	"portico/cmd/internal/logging"
)

// LogFlags are the flags of the log of a process.
type LogFlags struct {
	Verbosity       int
	modules, format string
}

func (f *LogFlags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&f.format, "log-format", logging.Text, "`form` of the lines of the log: text or json")
	fs.IntVarP(&f.Verbosity, "v", "v", 0, "log `level`: 0 for information, 1 and above for debugging, -1 for warnings and errors only")
	fs.StringVar(&f.modules, "vmodule", "", "log `levels` of single packages as PACKAGE=LEVEL, separated by commas; the package is the end of its import path, as in upstream=1,gateway/proxy=-1, and may have *")
}

// check returns the error of Open. It sets the levels of the process, as Open does, which a process calls later.
func (f *LogFlags) check() error {
	_, err := f.Open(io.Discard)
	return err
}

// Open returns the log of the process, on w. Its levels are logging.Process.
func (f *LogFlags) Open(w io.Writer) (*slog.Logger, error) {
	if err := logging.Process.SetVerbosity(strconv.Itoa(f.Verbosity)); err != nil {
		return nil, err
	}
	if err := logging.Process.SetModules(f.modules); err != nil {
		return nil, err
	}
	return logging.New(w, f.format, logging.Process)
}
