package main

import (
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
