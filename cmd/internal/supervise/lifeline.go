package supervise

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// LifelineEnv names the file descriptor of the lifeline in a child's environment.
const LifelineEnv = "PORTICO_LIFELINE_FD"

// lifelineFD is the first descriptor that os/exec gives to ExtraFiles.
const lifelineFD = 3

// lifeline is a pipe. Only the supervisor holds the writing end, so that it closes when the
// supervisor ends.
type lifeline struct{ read, write *os.File }

func newLifeline() (*lifeline, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make lifeline: %w", err)
	}
	return &lifeline{read: r, write: w}, nil
}

// env names the descriptor of the child's end, after other files.
func (l *lifeline) env(after int) string {
	return LifelineEnv + "=" + strconv.Itoa(lifelineFD+after)
}

// started closes the supervisor's copy of the child's end.
func (l *lifeline) started() { l.read.Close() }

func (l *lifeline) close() {
	l.read.Close()
	l.write.Close()
}

// WatchLifeline calls gone once when the supervisor of this process has ended. It does nothing
// in a process without a supervisor. It fails if the environment names an invalid descriptor.
func WatchLifeline(gone func()) error {
	value := os.Getenv(LifelineEnv)
	if value == "" {
		return nil
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < lifelineFD {
		return fmt.Errorf("read %s: %q is not a file descriptor of a lifeline", LifelineEnv, value)
	}
	// Children of this process do not inherit it.
	os.Unsetenv(LifelineEnv)
	syscall.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "lifeline")
	if _, err := f.Stat(); err != nil {
		return fmt.Errorf("open lifeline: %w", err)
	}
	go func() {
		// Nothing is ever written: Read returns when the other end closes.
		_, _ = f.Read(make([]byte, 1))
		f.Close()
		gone()
	}()
	return nil
}
