package netround

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported says whether there is such a thing on this system.
const Supported = true

// Round goes through rounds of the runtime, by a descriptor that it polls among all
// others. It is for one goroutine.
type Round struct {
	file   *os.File
	conn   syscall.RawConn
	signal func(fd uintptr) bool // of conn.Read: whether it need not be waited for
	given  bool                  // the signal that is waited for
	err    error
}

// one is what an eventfd takes: a number of 8 bytes, in the machine's order, to add
// to its own. That never gets to its end.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// New makes a Round, which takes a descriptor until Close. On systems that have no such
// thing it fails with [errors.ErrUnsupported].
func New() (*Round, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make event: %w", err)
	}
	e := &Round{file: os.NewFile(uintptr(fd), "round")}
	e.signal = func(fd uintptr) bool {
		if e.given {
			return true
		}
		e.given = true
		_, e.err = unix.Write(int(fd), one)
		return e.err != nil
	}
	if e.conn, err = e.file.SyscallConn(); err != nil {
		e.Close()
		return nil, fmt.Errorf("poll event: %w", err)
	}
	return e, nil
}

// Pass returns when the runtime has run what could run and has asked the kernel
// for more. It signals the event, and waits for the signal. The runtime polls by
// edges: each signal is told once, whether or not anybody has read the one before.
func (e *Round) Pass() error {
	e.given = false
	if err := e.conn.Read(e.signal); err != nil {
		return fmt.Errorf("wait for event: %w", err)
	}
	return e.err
}

// Close lets go of the descriptor. No Pass may be under way.
func (e *Round) Close() { _ = e.file.Close() }
