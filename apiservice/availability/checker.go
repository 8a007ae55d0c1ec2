// Package availability probes targets and computes verdicts, of which package
// gateway/routing makes conditions, routes and metrics. A target is an identity and a probe.
//
// Each target has a goroutine, so that one that hangs delays no other. The states of a
// target:
//
//	          first probe good
//	unknown ────────────────────► healthy ◄───────────┐
//	   │                             │ a probe fails  │ rise good probes
//	   │ first probe fails           ▼ or Suspect     │
//	   └────────► unhealthy ◄──── suspect             │
//	                  │   fall failures, or one       │
//	                  │   that is decisive            │
//	                  └───────────────────────────────┘
//
// A healthy target is probed every Schedule.Interval, a suspect or unhealthy one
// every Schedule.Suspect. A refused connection is decisive: no process listens. A probe that
// timed out proves nothing, and changes nothing, if the target answered a request meanwhile, or
// if this process was too busy itself to tell (pulse.go).
//
// Runs in: gateway.
package availability

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Probe checks a target once. ctx has the timeout, which is for the header of the answer: a
// probe that reads a document may take longer, and then bounds that itself.
type Probe func(ctx context.Context) error

// Target is something to check. With another Version of the same ID it starts again from its
// Verdict.
type Target struct {
	ID string
	// Version distinguishes different probes of one ID (another address, another CA).
	Version string
	Probe   Probe
	// Verdict is the verdict before the first probe.
	Verdict Verdict
	// Schedule overrides non-zero fields of the Checker's schedule. If the Version is the
	// same, it applies from the next probe.
	Schedule Schedule
	// OnChange, if not nil, is called before the Checker's OnChange, by the same rules.
	OnChange func(Verdict)
	// Answers, if not nil, returns how many requests the target has answered: one that answers
	// requests is not unhealthy because it is slow to answer probes.
	Answers func() uint64
}

// TimeoutError is a probe that was not answered within the timeout.
type TimeoutError struct {
	After time.Duration
	Err   error
}

func (e *TimeoutError) Error() string { return fmt.Sprintf("timed out after %v: %v", e.After, e.Err) }
func (e *TimeoutError) Unwrap() error { return e.Err }

// Schedule is how often a target is probed, and how many results change its verdict.
type Schedule struct {
	// Interval between probes of a healthy target. Default 5 s. It is up to a tenth shorter
	// at random, so that targets do not remain in step.
	Interval time.Duration
	// Suspect is the interval between probes of any other target. Default 500 ms.
	Suspect time.Duration
	// Timeout of one probe. Default 1 s.
	Timeout time.Duration
	// Fall is how many failures in a row make a healthy target unhealthy, 1 if the failure
	// is decisive. Default 3.
	Fall int
	// Rise is how many good probes in a row make it healthy again. Default 2.
	Rise int
}

// or returns the schedule with the values of another for those that are zero.
func (s Schedule) or(other Schedule) Schedule {
	return Schedule{
		Interval: cmp.Or(s.Interval, other.Interval), Suspect: cmp.Or(s.Suspect, other.Suspect), Timeout: cmp.Or(s.Timeout, other.Timeout),
		Fall: cmp.Or(s.Fall, other.Fall), Rise: cmp.Or(s.Rise, other.Rise),
	}
}

// Verdict is the state of a target.
type Verdict struct {
	// Known is false until the first probe has ended.
	Known   bool
	Healthy bool
	// Err is the last failure; nil while healthy.
	Err error
	// Since is when Healthy last changed.
	Since time.Time
	// Earlier is true while the verdict is that of an earlier Version: until a probe of
	// this one confirms or changes it.
	Earlier bool
}

// Config of a Checker. The zero value of a field means its default.
type Config struct {
	Schedule Schedule
	// OnChange is called with every new verdict, from the goroutine of the target. It must
	// not call Set. Required.
	OnChange func(id string, v Verdict)
	Logger   *slog.Logger
}

// Checker probes a changing set of targets. Safe for concurrent use.
type Checker struct {
	cfg Config

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	targets map[string]*target
	done    sync.WaitGroup
}

// New returns a Checker; nothing is probed before Run.
func New(cfg Config) *Checker {
	cfg.Schedule = cfg.Schedule.or(Schedule{
		Interval: 5 * time.Second, Suspect: 500 * time.Millisecond, Timeout: time.Second, Fall: 3, Rise: 2,
	})
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Checker{cfg: cfg, targets: map[string]*target{}}
}

// Run probes until ctx ends, and returns when the last probe has.
func (c *Checker) Run(ctx context.Context) error {
	c.mu.Lock()
	c.ctx = ctx
	for _, t := range c.targets {
		c.start(t)
	}
	c.mu.Unlock()
	<-ctx.Done()
	c.done.Wait()
	return ctx.Err()
}

// Set replaces the set of targets. Targets with the same ID and Version continue.
func (c *Checker) Set(targets []Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[string]*target, len(targets))
	for _, spec := range targets {
		schedule := spec.Schedule.or(c.cfg.Schedule)
		if t := c.targets[spec.ID]; t != nil && t.Version == spec.Version {
			t.schedule.Store(&schedule)
			next[spec.ID] = t
			continue
		}
		t := &target{Target: spec, checker: c, wake: make(chan struct{}, 1), verdict: spec.Verdict}
		t.verdict.Earlier = t.verdict.Known
		t.schedule.Store(&schedule)
		next[spec.ID] = t
		c.start(t)
	}
	for id, t := range c.targets {
		if next[id] != t && t.stop != nil {
			t.stop()
		}
	}
	c.targets = next
}

// start starts the goroutine of a target if Run was called; mu is held.
func (c *Checker) start(t *target) {
	if c.ctx == nil || c.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(c.ctx)
	t.stop = stop
	c.done.Go(func() { t.run(ctx) })
}

// Verdict returns the verdict on a target; the zero Verdict for an unknown one.
func (c *Checker) Verdict(id string) Verdict {
	t := c.target(id)
	if t == nil {
		return Verdict{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verdict
}

// Suspect reports that a request to the target failed or that a connection to it broke: it
// is probed at once, and at short intervals until it is healthy. It has no effect if the last
// probe failed, or on behalf of a failing probe.
func (c *Checker) Suspect(id string) {
	if t := c.target(id); t != nil && !t.failing.Load() {
		t.hurry()
	}
}

// Hurry reports that the target may have recovered: it is probed at once.
func (c *Checker) Hurry(id string) {
	if t := c.target(id); t != nil {
		t.hurried.Store(true)
		t.hurry()
	}
}

// target returns the target of an id; nil: there is none.
func (c *Checker) target(id string) *target {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.targets[id]
}

// target is one probed target and its goroutine's state.
type target struct {
	Target
	checker  *Checker
	stop     context.CancelFunc
	wake     chan struct{}
	schedule atomic.Pointer[Schedule] // whole
	failing  atomic.Bool              // the last probe failed
	hurried  atomic.Bool              // Hurry was called since the last probe began

	mu      sync.Mutex
	verdict Verdict

	good, bad int    // results in a row; used by run only
	answers   uint64 // of Answers when the first of the bad probes began
}

// run probes until ctx ends.
func (t *target) run(ctx context.Context) {
	for woken := false; ctx.Err() == nil; {
		started := time.Now()
		t.hurried.Store(false)
		err, proves := t.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := t.schedule.Load().Suspect
		if proves {
			wait = t.judge(err)
		}
		wait -= time.Since(started)
		t.failing.Store(err != nil)
		if err != nil && !t.hurried.Load() {
			select {
			case <-t.wake: // probably set by this probe
			default:
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.wake:
			gap := suspectGap
			if woken && err == nil { // the last wake-up was unfounded
				gap = max(gap, t.schedule.Load().Suspect)
			}
			t.pause(ctx, gap-time.Since(started))
			woken = true
		case <-timer.C:
			woken = false
		}
		timer.Stop()
	}
}

// hurry starts the next probe.
func (t *target) hurry() {
	select {
	case t.wake <- struct{}{}:
	default: // it is due already
	}
}

// suspectGap is the shortest time between probes that Suspect causes. A target that is
// suspected all the time and passes is probed at the interval of suspect ones.
const suspectGap = 50 * time.Millisecond

// pause waits for gap, or until ctx ends.
func (t *target) pause(ctx context.Context, gap time.Duration) {
	if gap <= 0 {
		return
	}
	timer := time.NewTimer(gap)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// probe probes once, and reports whether the result says anything about the target.
func (t *target) probe(ctx context.Context) (err error, proves bool) {
	if t.bad == 0 {
		t.answers = t.answered()
	}
	timeout := t.schedule.Load().Timeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	own := startPulse()
	err = t.Probe(ctx)
	late := own.stop()
	if err == nil || ctx.Err() == nil || decisive(err) {
		return err, true
	}
	if n := t.answered(); n != t.answers {
		t.bad, late = 0, true
	}
	return &TimeoutError{timeout, err}, !late
}

func (t *target) answered() uint64 {
	if t.Answers == nil {
		return 0
	}
	return t.Answers()
}

// judge updates the verdict with a result and returns the time to the next probe, from the
// start of this one.
func (t *target) judge(err error) time.Duration {
	cfg, schedule := &t.checker.cfg, t.schedule.Load()
	t.mu.Lock()
	before := t.verdict
	now := t.verdict
	if err == nil {
		t.good, t.bad = t.good+1, 0
		if !now.Known || t.good >= schedule.Rise {
			now.Healthy, now.Err = true, nil
		}
	} else {
		t.good, t.bad = 0, t.bad+1
		if !now.Known || t.bad >= schedule.Fall || decisive(err) {
			now.Healthy = false
		}
		if !now.Healthy {
			now.Err = err
		}
	}
	now.Known = true
	if now.Healthy == (err == nil) {
		now.Earlier = false
	}
	changed := before.Known != now.Known || before.Healthy != now.Healthy
	if changed {
		now.Since = time.Now()
	}
	t.verdict = now
	t.mu.Unlock()

	if changed || before.Earlier != now.Earlier || !sameText(before.Err, now.Err) {
		if changed {
			cfg.Logger.Info("availability changed", "target", t.ID, "healthy", now.Healthy, "err", now.Err)
		}
		if t.OnChange != nil {
			t.OnChange(now)
		}
		cfg.OnChange(t.ID, now)
	}
	if err == nil && now.Healthy {
		twentieth := schedule.Interval / 20
		return schedule.Interval - twentieth - time.Duration(rand.Int64N(int64(twentieth)+1))
	}
	if err == nil {
		return min(schedule.Suspect, suspectGap) // it has probably recovered
	}
	return schedule.Suspect
}

func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

// decisive reports whether the error proves that no process listens: the connection was
// refused, or the unix socket does not exist.
func decisive(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}
