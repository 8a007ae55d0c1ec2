package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
)

// cores says which processor is the proxies' and which is the others'. Where
// there is one only, or no taskset, nothing is pinned.
type cores struct{ taskset string }

// newCores pins this process to the core that is not the proxies'.
func newCores() (*cores, string) {
	taskset, err := exec.LookPath("taskset")
	switch {
	case err != nil:
		return &cores{}, "nothing is pinned to a core: taskset is not installed (Debian package util-linux)"
	case runtime.NumCPU() < 2:
		return &cores{}, "nothing is pinned to a core: there is one only"
	}
	c := &cores{taskset}
	if err := c.move(os.Getpid(), loadCore); err != nil {
		return &cores{}, fmt.Sprintf("nothing is pinned to a core: %v", err)
	}
	return c, ""
}

const (
	loadCore  = "0"
	proxyCore = "1"
)

// load and proxy are the commands that start a program on the one core and on
// the other.
func (c *cores) load() []string  { return c.on(loadCore) }
func (c *cores) proxy() []string { return c.on(proxyCore) }

func (c *cores) on(core string) []string {
	if c.taskset == "" {
		return nil
	}
	return []string{c.taskset, "-c", core}
}

// moveToProxy moves a process and all of its threads to the proxies' core.
func (c *cores) moveToProxy(pid int) error { return c.move(pid, proxyCore) }

func (c *cores) move(pid int, core string) error {
	if c.taskset == "" {
		return nil
	}
	if out, err := exec.Command(c.taskset, "-a", "-c", "-p", core, strconv.Itoa(pid)).CombinedOutput(); err != nil {
		return fmt.Errorf("move process %d to core %s: %w: %s", pid, core, err, out)
	}
	return nil
}

// runFirst has this process, and all that it starts from now on, scheduled before what
// else runs on the machine, and says whether that is so. The agents of a virtual
// machine and the kernel's memory daemons keep a core from whoever has it for up to
// 20 ms at a time, which is the 99th percentile of a quarter of a second; a nice value
// shortens that only. The kernel keeps a twentieth of the time for the others.
func runFirst() string {
	const not = "everybody takes turns with what else runs on the machine"
	chrt, err := exec.LookPath("chrt")
	if err != nil {
		return not + ": chrt is not installed (Debian package util-linux)"
	}
	if out, err := exec.Command(chrt, "--all-tasks", "--rr", "--pid", "1", strconv.Itoa(os.Getpid())).CombinedOutput(); err != nil {
		return fmt.Sprintf("%s: %v: %s", not, err, bytes.TrimSpace(out))
	}
	return "everybody is scheduled before what else runs on the machine (SCHED_RR; not so with --real-time=false)"
}

// splitPort takes host:port apart.
func splitPort(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("read address: %w", err)
	}
	return host, port, nil
}
