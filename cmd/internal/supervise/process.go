package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// backoffMin and backoffMax bound the pause before a child is restarted; it doubles
	// with each restart.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	// healthyAfter is how long a child must have been ready for the pause to be
	// backoffMin again.
	healthyAfter = backoffMax
	// startAttempts is how many times a child may end without having been ready.
	startAttempts = 3
	// probeInterval is the pause between two readiness checks.
	probeInterval = 10 * time.Millisecond
)

// RestartsEnv is the environment variable of a child that says how many times it was started again.
const RestartsEnv = "PORTICO_RESTARTS"

// Config describes a child.
type Config struct {
	// Name is for reports.
	Name string
	// Path and Args are the program and its arguments.
	Path string
	Args []string
	// Env is added to the supervisor's own environment.
	Env []string
	// Files are the child's descriptors from 3 on.
	Files []*os.File
	// Log receives the output of the child. Required.
	Log *Log
	// Ready returns nil if the child is ready. Required.
	Ready func(ctx context.Context) error
	// StopTimeout is the time between SIGTERM and SIGKILL. Required.
	StopTimeout time.Duration
	// Report receives a line for each event of the child after it was ready for the first time:
	// what ends it before that is the error of Run, or passes with the next attempt. Required.
	Report func(line string)
}

// Process is a child that is kept running.
type Process struct {
	cfg   Config
	ready chan struct{} // closed when the child is ready for the first time

	mu      sync.Mutex
	pid     int
	waiting error // why the child is not ready; nil if it is
}

// New returns a process that Run will start.
func New(cfg Config) *Process { return &Process{cfg: cfg, ready: make(chan struct{})} }

// Ready returns a channel that is closed when the child is ready for the first time.
func (p *Process) Ready() <-chan struct{} { return p.ready }

// PID returns the child's process id; 0 while it does not run.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Waiting returns the error of the last readiness check.
func (p *Process) Waiting() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// Run keeps the child running until ctx ends, then stops it and returns nil. It returns an
// error only for a child that has ended three times without having been ready.
func (p *Process) Run(ctx context.Context) error {
	// The parent-death signal is tied to this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause, deaths := backoffMin, 0
	for ctx.Err() == nil {
		healthy, err := p.once(ctx, deaths)
		if ctx.Err() != nil {
			return nil
		}
		if healthy >= healthyAfter {
			pause = backoffMin
		}
		deaths++
		if !p.wasReady() && deaths >= startAttempts {
			return p.startError(err)
		}
		if p.wasReady() {
			p.cfg.Report(fmt.Sprintf("%s ended (%v); starting it again in %v", p.cfg.Name, err, pause))
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, backoffMax)
	}
	return nil
}

func (p *Process) wasReady() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

func (p *Process) startError(err error) error {
	if last := p.cfg.Log.Last(); last != "" {
		// The process may have said the same.
		last = strings.TrimPrefix(strings.TrimPrefix(last, "portico: "), "start "+p.cfg.Name+": ")
		return fmt.Errorf("start %s: %s", p.cfg.Name, last)
	}
	return fmt.Errorf("start %s: %w", p.cfg.Name, err)
}

// once runs the child until it ends or ctx ends. It returns how long the child was ready, and
// why it has ended.
func (p *Process) once(ctx context.Context, restarts int) (healthy time.Duration, err error) {
	line, err := newLifeline()
	if err != nil {
		return 0, err
	}
	defer line.close()
	p.cfg.Log.restart()
	cmd := exec.CommandContext(ctx, p.cfg.Path, p.cfg.Args...)
	// At the end of ctx: SIGTERM, and SIGKILL after WaitDelay.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = p.cfg.StopTimeout
	cmd.Env = append(append(os.Environ(), p.cfg.Env...), line.env(len(p.cfg.Files)), RestartsEnv+"="+strconv.Itoa(restarts))
	cmd.ExtraFiles = append(slices.Clone(p.cfg.Files), line.read)
	cmd.Stdout, cmd.Stderr = p.cfg.Log, p.cfg.Log
	cmd.SysProcAttr = ChildAttributes()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	line.started()
	p.setPID(cmd.Process.Pid)
	defer p.setPID(0)

	watchCtx, stopWatch := context.WithCancel(ctx)
	watched := make(chan time.Time, 1)
	go func() { watched <- p.watchReady(watchCtx) }()
	err = cmd.Wait()
	stopWatch()
	if since := <-watched; !since.IsZero() {
		healthy = time.Since(since)
	}
	switch status := cmd.ProcessState.Sys().(syscall.WaitStatus); {
	case ctx.Err() != nil && status.Signal() == syscall.SIGKILL:
		p.cfg.Report(fmt.Sprintf("%s did not stop within %v and was killed", p.cfg.Name, p.cfg.StopTimeout))
	case err == nil:
		err = errors.New("exit status 0")
	}
	return healthy, err
}

func (p *Process) setPID(pid int) {
	p.mu.Lock()
	p.pid = pid
	p.mu.Unlock()
}

// watchReady checks until the child is ready and returns the time; zero if ctx ends first.
func (p *Process) watchReady(ctx context.Context) time.Time {
	for {
		err := p.cfg.Ready(ctx)
		p.mu.Lock()
		p.waiting = err
		p.mu.Unlock()
		if err == nil && ctx.Err() == nil {
			if p.wasReady() {
				p.cfg.Report(p.cfg.Name + " is ready again")
			} else {
				close(p.ready)
			}
			return time.Now()
		}
		select {
		case <-ctx.Done():
			return time.Time{}
		case <-time.After(probeInterval):
		}
	}
}
