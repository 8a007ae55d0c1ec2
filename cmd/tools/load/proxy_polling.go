package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// startPolling starts another gateway of the installation, on the proxies' core: one
// that looks for work for a time before it sleeps. Whatever else it is told, the
// first one was told.
func (r *proxyRun) startPolling(ctx context.Context, poll time.Duration) (*front, error) {
	const name = "gateway, polling"
	first := r.gateway
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", first.pid))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	args := slices.DeleteFunc(strings.Split(strings.TrimRight(string(text), "\x00"), "\x00"), func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return slices.Contains([]string{"--listen", "--audit-log-path", "--state-dir"}, flag)
	})
	args = append(args, "--listen="+address, "--busy-poll="+poll.String())
	if r.o.audit {
		args = append(args, "--audit-log-path="+filepath.Join(r.dir, "audit-polling.log"))
	}
	log, err := os.Create(filepath.Join(r.dir, "polling.log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	args = append(r.cores.proxy(), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // it is for such
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	f := &front{name: name, address: address, tls: first.tls, pid: cmd.Process.Pid, stop: func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
		_ = cmd.Wait()                          // how it ends is nothing to us
	}}
	if err := f.await(ctx); err != nil {
		f.stop()
		said, _ := os.ReadFile(log.Name()) // the error is there already
		return nil, fmt.Errorf("start %s: %w; it said: %s", name, err, said)
	}
	return f, nil
}
