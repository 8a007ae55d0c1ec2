package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"portico/cmd/e2e"
)

// SIGHUP ends neither `up` nor its processes: they read files again. With a terminal, which the
// processes have if the test has one, it stops them in order.
func TestHangup(t *testing.T) {
	t.Parallel()
	// Children of a program that nohup started ignore the signal, unless it is caught here.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if terminal, err := os.Open("/dev/tty"); err == nil {
		terminal.Close()
		testHangupInTerminal(t)
		return
	}
	up := e2e.Install(t, t.TempDir())
	pids := map[string]int{"up": up.Cmd.Process.Pid}
	for _, child := range []string{"etcd", "core", "crd", "gateway"} {
		pids[child] = up.Child(t, child)
	}
	for name, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		if name == "etcd" { // its log has warnings only
			continue
		}
		e2e.Eventually(t, name+" logs the signal", func() error {
			text, err := os.ReadFile(filepath.Join(up.Dir, "logs", name+".log"))
			if err != nil || !strings.Contains(string(text), "SIGHUP: files that changed are read again") {
				return fmt.Errorf("%w: %s", err, text)
			}
			return nil
		})
	}
	up.MustKubectl(t, "create", "namespace", "hangup")
	for name, pid := range pids {
		if !e2e.Alive(pid) || name != "up" && up.Child(t, name) != pid {
			t.Errorf("%s has ended", name)
		}
	}
}

func testHangupInTerminal(t *testing.T) {
	t.Helper()
	up := e2e.Install(t, t.TempDir())
	if err := up.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := up.Await("stopping etcd"); err != nil {
		t.Error(err)
	}
	if err := <-up.Exited; err != nil {
		t.Error(err)
	}
}
