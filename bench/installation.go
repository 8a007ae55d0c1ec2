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
	// startLimit is how long an installation may take to say that it is ready,
	// stopLimit how long to end when it is asked to.
	startLimit = time.Minute
	stopLimit  = 30 * time.Second
	// ready is what "portico up" says then.
	ready = "Portico is ready"
)

// stack is an installation that this program started.
type installation struct {
	dir    string
	cmd    *exec.Cmd
	exited chan error
}

// startInstallation starts an installation on empty data and points o to it. The
// caller stops it.
func startInstallation(ctx context.Context, o *options) (*installation, error) {
	dir, err := os.MkdirTemp("", "portico-bench-")
	if err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	s := &installation{dir: dir, exited: make(chan error, 1)}
	said, err := os.Create(s.log())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create log: %w", err), os.RemoveAll(dir))
	}
	defer said.Close()
	data := filepath.Join(dir, "data")
	args := []string{"up", "--listen=127.0.0.1:0", "--data-dir=" + data, fmt.Sprintf("--profiling=%t", o.profile != "")}
	if o.audit {
		audited, err := auditFlags(dir)
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		args = append(args, audited...)
	}
	s.cmd = exec.Command(o.portico, args...)
	s.cmd.Stdout, s.cmd.Stderr = said, said
	// Ctrl-C in a terminal goes to the whole group; this one ends last.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start installation: %w", err), os.RemoveAll(dir))
	}
	go func() { s.exited <- s.cmd.Wait() }()
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start installation: %w", err), s.stop())
	}
	o.dataDir = data
	o.useDataDir()
	return s, nil
}

// auditPolicy has one event for every request.
const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`

// auditFlags have the gateway write an audit log into the folder, as who has much
// to write would: nobody waits for it.
func auditFlags(dir string) ([]string, error) {
	policy := filepath.Join(dir, "audit-policy.json")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, fmt.Errorf("write audit policy: %w", err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + filepath.Join(dir, "audit.log"), "--audit-log-mode=batch"}, nil
}

func (s *installation) log() string { return filepath.Join(s.dir, "up.log") }

// awaitReady waits until the installation says so.
func (s *installation) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("it was not ready within %v", startLimit))
	defer cancel()
	for {
		said, err := os.ReadFile(s.log())
		if err != nil {
			return err
		}
		if bytes.Contains(said, []byte(ready)) {
			return nil
		}
		select {
		case err := <-s.exited:
			s.exited <- err
			return fmt.Errorf("it ended: %v; it said: %s", err, said)
		case <-ctx.Done():
			return fmt.Errorf("%w; it said: %s", context.Cause(ctx), said)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop ends the installation and deletes its data.
func (s *installation) stop() error {
	// It may have ended already.
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.exited:
	case <-time.After(stopLimit):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("delete data of the installation: %w", err)
	}
	return nil
}
