package pace

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// relaxedEnv marks a program that has been executed anew: it is not a second time,
// whatever has become of the slack.
const relaxedEnv = "PORTICO_RELAXED"

// usualSlack is the kernel's own default.
const usualSlack = 50 * time.Microsecond

// spareThreads are made beside those that there are, so that the monitor, which
// hands work to another thread when a system call lasts, hardly ever has to make
// one: it would get the monitor's slack.
const spareThreads = 8

func relax() error {
	if os.Getenv(relaxedEnv) != "" {
		os.Unsetenv(relaxedEnv)
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := setSlack(slack); err != nil {
		return err
	}
	defer setSlack(usualSlack) // where nothing else came of it
	// A thread of a real-time class has none, whatever is set.
	if !isRelaxed() {
		return errors.New("the kernel does not keep it")
	}
	return syscall.Exec(program, os.Args, append(os.Environ(), relaxedEnv+"=1"))
}

// isRelaxed is of the calling thread.
func isRelaxed() bool {
	ns, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	return err == nil && ns == int(slack)
}

// setSlack is for the calling thread.
func setSlack(d time.Duration) error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0))
}

// tighten gives the threads the usual slack again, as far as goroutines come to them:
// not the monitor, nor one that stands in a long system call, nor what those make. A
// goroutine cannot choose its thread: so many are locked to one at the same time as
// there are threads, and some more; twice, for those that were made meanwhile.
func tighten() error {
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		if err := setSlack(usualSlack); err != nil {
			return err
		}
		var locked, done sync.WaitGroup
		n := len(tasks) + spareThreads
		locked.Add(n)
		for range n {
			done.Go(func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				_ = setSlack(usualSlack) // it has been possible
				locked.Done()
				locked.Wait()
			})
		}
		done.Wait()
	}
	return nil
}
