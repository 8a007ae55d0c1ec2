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
)

// second is another gateway of the installation that takes part.
type second struct {
	name    string
	program string // empty: the first one's
}

// seconds returns the other gateways to measure for rate and latency.
func (o *proxyOptions) seconds() []second {
	if o.against == "" {
		return nil
	}
	return []second{{name: "gateway, against", program: o.against}}
}

// startSeconds starts the other gateways on the proxies' core.
func (r *proxyRun) startSeconds(ctx context.Context) (fronts []*front, stop func(), err error) {
	stop = func() {
		for _, f := range fronts {
			f.stop()
		}
	}
	for _, s := range r.o.seconds() {
		f, err := r.startSecond(ctx, s)
		if err != nil {
			stop()
			return nil, nil, err
		}
		fronts = append(fronts, f)
	}
	return fronts, stop, nil
}

// startSecond starts another gateway of the installation. Whatever else it is
// told, the first one was told.
func (r *proxyRun) startSecond(ctx context.Context, s second) (*front, error) {
	name := s.name
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
	if s.program != "" {
		args[0] = s.program
	}
	args = append(args, "--listen="+address)
	if r.o.audit {
		args = append(args, "--audit-log-path="+filepath.Join(r.dir, fileName(name)+".audit.log"))
	}
	log, err := os.Create(filepath.Join(r.dir, fileName(name)+".log"))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	args = append(r.unscheduled(r.cores.proxy()), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1") // as the first one has it
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	f := &front{name: name, address: address, tls: first.tls, pid: cmd.Process.Pid, unscheduled: true, stop: func() {
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
