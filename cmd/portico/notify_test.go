package main

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// `up` tells systemd that it is ready when its gateway is, gives signs of life while its
// children answer, and does not let them speak for it.
func TestUpNotifies(t *testing.T) {
	t.Parallel()
	n := listenForNotices(t)
	await := func(text string) []string {
		t.Helper()
		return n.await(t, text)
	}
	up := &e2e.Installation{Installation: startWith(t, t.TempDir(), "NOTIFY_SOCKET="+n.path, "WATCHDOG_USEC="+strconv.Itoa(int(time.Second/time.Microsecond)))}
	for _, line := range await("READY=1") {
		if strings.Contains(line, "READY") || strings.Contains(line, "serving") {
			t.Errorf("before it is ready: %q", line)
		}
	}
	if said := up.Output.String(); !strings.Contains(said, "starting core server") {
		t.Errorf("ready before its children: %s", said)
	}
	await("WATCHDOG=1")
	for _, child := range []string{"etcd", "core", "crd", "gateway"} {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(up.Child(t, child)) + "/environ")
		if err != nil || strings.Contains(string(env), "NOTIFY_SOCKET") || strings.Contains(string(env), "WATCHDOG") {
			t.Errorf("%s may notify systemd: %v", child, err)
		}
	}
	core := up.Child(t, "core")
	if err := syscall.Kill(core, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() { _ = syscall.Kill(core, syscall.SIGCONT) }) // fails if it has ended
	defer goOn()
	await("STATUS=not alive: core: ")
	goOn()
	for _, line := range await("STATUS=serving\nWATCHDOG=1") {
		if strings.Contains(line, "WATCHDOG") {
			t.Errorf("a sign of life while core did not answer: %q", line)
		}
	}
	stopped := make(chan error, 1)
	go func() { stopped <- up.Stop() }()
	await("STOPPING=1")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// startWith starts `up` with further variables in its environment, and stops it at the end of
// the test.
func startWith(t *testing.T, dir string, env ...string) *testtools.Installation {
	t.Helper()
	e2e.NeedsInstallation(t)
	up, err := testtools.StartWith(env, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := up.Stop(); err != nil {
			t.Error(err)
		}
	})
	return up
}
