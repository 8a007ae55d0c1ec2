package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// startLimit bounds the time until an installation is ready, stopLimit the
	// time until it has ended after a signal.
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
	// ready is the message of "portico up" when it is ready.
	ready = "Portico is ready"
)

// installation is a "portico up" that this program started.
type installation struct {
	dir    string
	cmd    *exec.Cmd
	exited chan error
}

// startInstallation starts "portico up" with empty data and sets o.dataDir,
// o.kubeconfig and o.etcd. The caller stops it.
func startInstallation(ctx context.Context, o *options) (*installation, error) {
	dir, err := os.MkdirTemp("", "portico-bench-")
	if err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	s := &installation{dir: dir}
	data := filepath.Join(dir, "data")
	args := []string{"--listen=127.0.0.1:0", "--data-dir=" + data, fmt.Sprintf("--profiling=%t", o.profile != "")}
	if o.flags != nil {
		flags, err := o.flags(dir)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		args = append(args, flags...)
	}
	if err := s.launch(o.portico, args...); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start installation: %w", err), s.stop())
	}
	o.dataDir = data
	o.useDataDir()
	return s, nil
}

// launch starts "portico up" with a new log.
func (s *installation) launch(program string, args ...string) error {
	output, err := os.Create(s.log())
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	defer output.Close()
	s.cmd = exec.Command(program, append([]string{"up"}, args...)...)
	s.cmd.Stdout, s.cmd.Stderr = output, output
	// Ctrl-C in a terminal signals the whole process group. This program stops
	// the installation after it has deleted its objects.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("start installation: %w", err)
	}
	exited, cmd := make(chan error, 1), s.cmd
	s.exited = exited
	go func() { exited <- cmd.Wait() }()
	return nil
}

// auditPolicy logs one event per request.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`

// auditFlags returns the flags for an audit log in dir, written in the background
// (mode batch), as operators configure it for high rates.
func auditFlags(dir string) ([]string, error) {
	policy := filepath.Join(dir, "audit-policy.json")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("write audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(dir, "audit.log"), "--audit-log-mode=batch"}, nil
}

func (s *installation) log() string { return filepath.Join(s.dir, "up.log") }

// awaitReady waits until the installation has printed that it is ready.
func (s *installation) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %v", startLimit))
	defer cancel()
	for {
		output, err := os.ReadFile(s.log())
		if err != nil {
			return err
		}
		if bytes.Contains(output, []byte(ready)) {
			return nil
		}
		select {
		case err := <-s.exited:
			s.exited <- err
			return fmt.Errorf("it ended: %v; output: %s", err, output)
		case <-ctx.Done():
			return fmt.Errorf("%w; output: %s", context.Cause(ctx), output)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// halt ends the installation.
func (s *installation) halt() error {
	// The process may have ended already.
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.exited:
		s.exited <- err
		return nil
	case <-time.After(stopLimit):
		_ = s.cmd.Process.Kill()
		s.exited <- <-s.exited
		return fmt.Errorf("the installation did not stop within %v", stopLimit)
	}
}

// stop ends the installation and deletes its data.
func (s *installation) stop() error {
	_ = s.halt() // its data are deleted anyway
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("delete data of the installation: %w", err)
	}
	return nil
}
