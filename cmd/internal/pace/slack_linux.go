package pace

import (
	"errors"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

func relax() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if threadIsRelaxed() {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0); err != nil {
		return err
	}
	// A thread of a real-time class has no slack, whatever is set: without this
	// the program would be executed for ever.
	if !threadIsRelaxed() {
		return errors.New("the kernel does not keep it")
	}
	return syscall.Exec(program, os.Args, os.Environ())
}

// threadIsRelaxed takes what this thread has for what all have: none other has
// set anything.
func threadIsRelaxed() bool {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return err == nil && ns >= int(slack)
}
