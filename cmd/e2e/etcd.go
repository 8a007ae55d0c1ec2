package e2e

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

// etcdEnv names the folder of an etcd that this test program shall be, instead
// of running tests: an etcd that can be killed without killing the test.
const etcdEnv = "PORTICO_TEST_ETCD"

// EtcdQuotaEnv is its quota in bytes, if it is not to have the usual one; it
// then looks often whether it is full.
const EtcdQuotaEnv = "PORTICO_TEST_ETCD_QUOTA"

// beEtcd runs an etcd until the process is killed, if it is meant to be one.
func beEtcd() {
	dir := os.Getenv(etcdEnv)
	if dir == "" {
		return
	}
	cfg := embedetcd.Config{Dir: filepath.Join(dir, "etcd"), SocketDir: dir, Logger: slog.New(slog.DiscardHandler)}
	if quota, err := strconv.ParseInt(os.Getenv(EtcdQuotaEnv), 10, 64); err == nil {
		cfg.Quota, cfg.ReliefInterval = quota, 500*time.Millisecond
	}
	if _, err := embedetcd.Start(context.Background(), cfg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("etcd serves")
	select {}
}

// EtcdProcess is an etcd of its own, which a test kills and starts again.
type EtcdProcess struct {
	dir string
	env []string
	Cmd *exec.Cmd
}

// StartEtcd starts one; more of its environment is name=value.
func StartEtcd(t *testing.T, env ...string) *EtcdProcess {
	t.Helper()
	// A short path: that of a socket may not be long.
	dir, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	e := &EtcdProcess{dir: dir, env: env}
	t.Cleanup(func() { e.Kill(); os.RemoveAll(dir) })
	e.Start(t)
	return e
}

// Endpoint returns the URL of its socket.
func (e *EtcdProcess) Endpoint() string { return "unix://" + filepath.Join(e.dir, "etcd.sock") }

// Start returns when it serves.
func (e *EtcdProcess) Start(t *testing.T) {
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
func (e *EtcdProcess) Kill() {
	_ = e.Cmd.Process.Kill()
	_ = e.Cmd.Wait() // killed, as it should be
}
