package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// backoffMin and backoffMax bound the pause before a child is started
	// again; it doubles with each death.
	backoffMin = 100 * time.Millisecond
	backoffMax = 5 * time.Second
	// healthyAfter is how long a child must have been ready for the pause to
	// start over.
	healthyAfter = backoffMax
	// startAttempts is how many times a child may die before it was ever ready.
	startAttempts = 3
	// probeInterval is the pause between two questions whether a child is ready.
	probeInterval = 10 * time.Millisecond
	// defaultStopTimeout is how long a child may take to stop.
	defaultStopTimeout = 30 * time.Second
)

// Config describes a child.
type Config struct {
	// Name is for reports.
	Name string
	// Path and Args are the program and its arguments.
	Path string
	Args []string
	// Env is added to the supervisor's own environment.
	Env []string
	// Log receives what the child writes to its standard streams. Required.
	Log *Log
	// Ready returns nil when the child serves. Required.
	Ready func(ctx context.Context) error
	// StopTimeout is how long the child may take to stop after SIGTERM before
	// it is killed; 0 is 30 s.
	StopTimeout time.Duration
	// Report receives a line for each event of the child; nil: none.
	Report func(line string)
}

// Process is a child that is kept running.
type Process struct {
	cfg   Config
	ready chan struct{} // closed when the child was ready for the first time

	mu      sync.Mutex
	pid     int
	waiting error // why the child is not ready; nil if it is
}

// New returns a process that Run will start.
func New(cfg Config) *Process {
	if cfg.StopTimeout == 0 {
		cfg.StopTimeout = defaultStopTimeout
	}
	if cfg.Report == nil {
		cfg.Report = func(string) {}
	}
	return &Process{cfg: cfg, ready: make(chan struct{})}
}

// Ready is closed once the child has been ready for the first time.
func (p *Process) Ready() <-chan struct{} { return p.ready }

// PID returns the child's process id; 0 while there is none.
func (p *Process) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

// Waiting returns why the child is not ready, as of the last question; nil if
// it was.
func (p *Process) Waiting() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}

// Run keeps the child running until ctx ends, then stops it and returns nil.
// It returns an error only for a child that cannot be started or has died
// several times without having been ready.
func (p *Process) Run(ctx context.Context) error {
	// See the package comment: the parent-death signal follows this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pause, deaths := backoffMin, 0
	for ctx.Err() == nil {
		healthy, err := p.once(ctx)
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
		p.cfg.Report(fmt.Sprintf("%s ended (%v); starting it again in %v", p.cfg.Name, err, pause))
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
		return fmt.Errorf("start %s: %s", p.cfg.Name, last)
	}
	return fmt.Errorf("start %s: %w", p.cfg.Name, err)
}

// once runs the child one time, until it dies or ctx ends. It returns how long
// the child was ready.
func (p *Process) once(ctx context.Context) (healthy time.Duration, err error) {
	line, err := newLifeline()
	if err != nil {
		return 0, err
	}
	defer line.close()
	p.cfg.Log.restart()
	cmd := exec.Command(p.cfg.Path, p.cfg.Args...)
	cmd.Env = append(os.Environ(), p.cfg.Env...)
	cmd.Env = append(cmd.Env, line.env())
	cmd.ExtraFiles = line.files()
	cmd.Stdout, cmd.Stderr = p.cfg.Log, p.cfg.Log
	cmd.SysProcAttr = childAttributes()
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	line.started()
	p.setPID(cmd.Process.Pid)
	defer p.setPID(0)

	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	watchCtx, stopWatch := context.WithCancel(ctx)
	watched := make(chan time.Time, 1)
	go func() { watched <- p.watchReady(watchCtx) }()
	select {
	case err = <-exited:
	case <-ctx.Done():
		err = p.stop(cmd.Process, exited)
	}
	stopWatch()
	if since := <-watched; !since.IsZero() {
		healthy = time.Since(since)
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	return healthy, err
}

func (p *Process) setPID(pid int) {
	p.mu.Lock()
	p.pid = pid
	p.mu.Unlock()
}

// watchReady asks until the child is ready and returns when that was; zero if
// ctx ended first.
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

// stop sends SIGTERM to the child and, after the timeout, SIGKILL.
func (p *Process) stop(child *os.Process, exited <-chan error) error {
	// An error means that it has ended already.
	_ = child.Signal(syscall.SIGTERM)
	select {
	case err := <-exited:
		return err
	case <-time.After(p.cfg.StopTimeout):
	}
	p.cfg.Report(fmt.Sprintf("%s has not stopped within %v; killing it", p.cfg.Name, p.cfg.StopTimeout))
	_ = child.Kill()
	return <-exited
}
