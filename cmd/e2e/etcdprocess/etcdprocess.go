// Package etcdprocess runs the embedded etcd in a process that a test can kill: the test binary
// itself. It is apart from package e2e, so that tests which need none do not link the server of
// etcd.
//
// Runs in: tests.
package etcdprocess

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"portico/cmd/internal/embedetcd"
)

// etcdEnv names a folder. It makes the test binary an etcd with its data there, which can be
// killed without killing the tests.
const etcdEnv = "PORTICO_TEST_ETCD"

// QuotaEnv is the quota of that etcd in bytes (default: that of portico). With a quota
// it checks every half second whether it is full.
const QuotaEnv = "PORTICO_TEST_ETCD_QUOTA"

// Be runs an etcd until the process is killed, if etcdEnv is set. It is for the begin of TestMain.
func Be() {
	dir := os.Getenv(etcdEnv)
	if dir == "" {
		return
	}
	cfg := embedetcd.Config{Dir: filepath.Join(dir, "etcd"), SocketDir: dir, Logger: slog.New(slog.DiscardHandler)}
	if quota, err := strconv.ParseInt(os.Getenv(QuotaEnv), 10, 64); err == nil {
		cfg.Quota, cfg.ReliefInterval = quota, 500*time.Millisecond
	}
	if _, err := embedetcd.Start(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("etcd serves")
	select {}
}

// Process is an etcd that a test can kill and start again.
type Process struct {
	dir string
	env []string
	Cmd *exec.Cmd
}

// Start starts an etcd; env are variables of its environment, as name=value.
func Start(t *testing.T, env ...string) *Process {
	t.Helper()
	// t.TempDir would be too long for the path of a socket.
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	e := &Process{dir: dir, env: env}
	t.Cleanup(func() { e.Kill(); os.RemoveAll(dir) })
	e.Start(t)
	return e
}

// Endpoint returns the URL of its socket.
func (e *Process) Endpoint() string { return "unix://" + filepath.Join(e.dir, "etcd.sock") }

// Start starts the process and returns when it serves.
func (e *Process) Start(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	e.Cmd = exec.Command(self)
	e.Cmd.Env = append(append(os.Environ(), etcdEnv+"="+e.dir), e.env...)
	e.Cmd.Stderr = os.Stderr
	out, err := e.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 64)); err != nil {
		t.Fatalf("etcd does not start: %v", err)
	}
}

// Kill ends it by SIGKILL and waits for that.
func (e *Process) Kill() {
	_ = e.Cmd.Process.Kill()
	_ = e.Cmd.Wait() // its error is that it was killed
}
