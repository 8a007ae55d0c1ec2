package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"portico/cmd/internal/embedetcd"
)

// etcdEnv names the folder of an etcd that this test program shall be, instead
// of running tests: an etcd that can be killed without killing the test.
const etcdEnv = "PORTICO_TEST_ETCD"

// etcdQuotaEnv is its quota in bytes, if it is not to have the usual one; it
// then looks often whether it is full.
const etcdQuotaEnv = "PORTICO_TEST_ETCD_QUOTA"

// beEtcd runs an etcd until the process is killed, if it is meant to be one.
func beEtcd() {
	dir := os.Getenv(etcdEnv)
	if dir == "" {
		return
	}
	cfg := embedetcd.Config{Dir: filepath.Join(dir, "etcd"), SocketDir: dir, Logger: slog.New(slog.DiscardHandler)}
	if quota, err := strconv.ParseInt(os.Getenv(etcdQuotaEnv), 10, 64); err == nil {
		cfg.Quota, cfg.ReliefInterval = quota, 500*time.Millisecond
	}
	if _, err := embedetcd.Start(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("etcd serves")
	select {}
}

// etcdProcess is an etcd of its own, which a test kills and starts again.
type etcdProcess struct {
	dir string
	env []string
	cmd *exec.Cmd
}

// startEtcd starts one; more of its environment is name=value.
func startEtcd(t *testing.T, env ...string) *etcdProcess {
	t.Helper()
	// A short path: that of a socket may not be long.
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	e := &etcdProcess{dir: dir, env: env}
	t.Cleanup(func() { e.kill(); os.RemoveAll(dir) })
	e.start(t)
	return e
}

func (e *etcdProcess) endpoint() string { return "unix://" + filepath.Join(e.dir, "etcd.sock") }

// start returns when it serves.
func (e *etcdProcess) start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e.cmd = exec.Command(self)
	e.cmd.Env = append(append(os.Environ(), etcdEnv+"="+e.dir), e.env...)
	e.cmd.Stderr = os.Stderr
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 64)); err != nil {
		t.Fatalf("etcd does not start: %v", err)
	}
}

func (e *etcdProcess) kill() {
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait() // killed, as it should be
}

// Everything that can die is killed, and etcd stopped, under load. See
// chaosLoad for what must hold.
func TestChaos(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	up := install(t, t.TempDir(), "--etcd-servers="+etcd.endpoint())
	load := startChaosLoad(t, up)
	kill := func(child string) func() {
		return func() {
			if err := syscall.Kill(up.child(t, child), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, fault := range []struct {
		name string
		do   func()
	}{
		{"kill -9 of the CRD server", kill("crd")},
		{"kill -9 of the core server", kill("core")},
		{"kill -9 of the gateway", kill("gateway")},
		{"kill -9 of etcd", func() { etcd.kill(); etcd.start(t) }},
		{"etcd stopped for 5 s", func() {
			if err := etcd.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if err := etcd.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		load.awaitProgress(t, "before "+fault.name)
		fault.do()
		began := time.Now()
		load.awaitProgress(t, "after "+fault.name)
		t.Logf("%s: all clients at work again after %v", fault.name, time.Since(began).Round(time.Millisecond))
	}
	load.finish(t)
}

// ledger is what clients know of their objects.
type ledger struct {
	mu      sync.Mutex
	entries map[string]entry
}

// entry is what is known of one object. Each has one writer, which leaves it
// alone once it was not told how a write ended: that may happen later still.
type entry struct {
	version int // grows with each note
	// present and n are how it is; unknown says that a write of n is under way,
	// or that nobody knows how it ended.
	present, unknown bool
	n                int
}

func (l *ledger) note(name string, e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.version = l.entries[name].version + 1
	l.entries[name] = e
}

func (l *ledger) copy() map[string]entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]entry, len(l.entries))
	for name, e := range l.entries {
		all[name] = e
	}
	return all
}

// differs says what is wrong about a list, by name and n, that was read while
// the ledger went from before to after. Objects that were written meanwhile may
// be in either state.
func differs(before, after map[string]entry, listed map[string]int) error {
	for name, e := range before {
		if e.unknown || after[name] != e {
			continue
		}
		n, there := listed[name]
		switch {
		case there && !e.present:
			return fmt.Errorf("%s is there, and its delete was acknowledged", name)
		case !there && e.present:
			return fmt.Errorf("%s is not there, and its write of %d was acknowledged", name, e.n)
		case there && n != e.n:
			return fmt.Errorf("%s is %d, and its write of %d was acknowledged", name, n, e.n)
		}
	}
	return nil
}
