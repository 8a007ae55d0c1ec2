package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// schedRR is a scheduling policy of Linux. Source: sched(7).
const schedRR = 2

// schedule sets the policy of a thread; 0 is the calling one. Threads and processes
// that it makes have the same.
func schedule(thread, policy, priority int) error {
	parameter := int32(priority)
	_, _, errno := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(thread), uintptr(policy), uintptr(unsafe.Pointer(&parameter)))
	if errno != 0 {
		return os.NewSyscallError("sched_setscheduler", errno)
	}
	return nil
}

// threads are those of a process, in the order in which they were made.
func threads(pid int) (all []int, err error) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// scheduleAll does so with all threads of a process but those that are left out, by
// their place in threads. One that has ended meanwhile needs none.
func scheduleAll(pid, policy, priority int, but ...int) error {
	all, err := threads(pid)
	for i, thread := range all {
		if err != nil {
			break
		}
		if slices.Contains(but, i) {
			continue
		}
		if err = schedule(thread, policy, priority); errors.Is(err, syscall.ESRCH) {
			err = nil
		}
	}
	return err
}

// runFirst has this process, and all that it starts from now on, scheduled before what
// else runs on the machine, and says whether that is so. The agents of a virtual
// machine and the kernel's memory daemons keep a core from whoever has it for up to
// 20 ms at a time, which is the 99th percentile of a quarter of a second; a nice value
// shortens that only. The kernel keeps a twentieth of the time for the others.
func runFirst() (note string, done bool) {
	const not = "everybody takes turns with what else runs on the machine"
	if _, err := exec.LookPath("chrt"); err != nil {
		return not + ": chrt is not installed (Debian package util-linux)", false
	}
	if err := scheduleAll(os.Getpid(), schedRR, 1); err != nil {
		return fmt.Sprintf("%s: %v", not, err), false
	}
	return "everybody is scheduled before what else runs on the machine (SCHED_RR; not so with --real-time=false)", true
}

// serveFirst has the server scheduled before the load, with which it shares a core: one
// that always has something to send, as after a stop, would keep the other from the core
// for the kernel's 100 ms at a time, and every proxy's requests with it.
func (r *proxyRun) serveFirst(server *front) error {
	if !r.first {
		return nil
	}
	return scheduleAll(server.pid, schedRR, 2)
}

// unscheduled is the command that starts a gateway, which looks at its start for what
// the kernel does for threads that are not of a real-time class.
func (r *proxyRun) unscheduled(before []string) []string {
	if !r.first {
		return before
	}
	return append([]string{"chrt", "--other", "0"}, before...)
}

// prefer has a gateway that was started so scheduled like everybody else, but for the
// monitor of Go's runtime, the first thread that is made: the gateway has the kernel
// wake that one late, which it does not do in a real-time class. Those that were made
// since the last time are found.
func (r *proxyRun) prefer(f *front) error {
	if !r.first || !f.unscheduled {
		return nil
	}
	return scheduleAll(f.pid, schedRR, 1, 1)
}

// latencyFile is where Linux is told how long waking a processor may take, in
// microseconds; what is told holds for as long as the file is open. Source:
// Documentation/power/pm_qos_interface.rst.
const latencyFile = "/dev/cpu_dma_latency"

// keepAwake keeps all processors from halting until the returned function is called, and
// says whether that is so. Waking one takes tens of microseconds, on a virtual machine
// whose host has others to run sometimes milliseconds: that is the machine's, and none
// of the proxies'.
//
// A process that is always busy, of the idle class, would do the same and something
// else: about once a second the kernel gives who is not of a real-time class 50 ms
// before all who are, of the processor that it finds short of time, and so every proxy
// stood still that long. (The fair server, since Linux 6.8.)
func keepAwake() (note string, stop func()) {
	const not = "processors halt while they are idle, and what waking them takes is in the latencies"
	f, err := os.OpenFile(latencyFile, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Sprintf("%s: %v", not, err), func() {}
	}
	if _, err := f.Write(make([]byte, 4)); err != nil {
		_ = f.Close()
		return fmt.Sprintf("%s: %v", not, err), func() {}
	}
	return "the processors do not halt while the latency is measured (" + latencyFile + "; not so with --awake=false)", func() { _ = f.Close() }
}
