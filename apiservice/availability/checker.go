// Package availability tells whether servers answer. It knows targets, not
// APIServices: a target is an identity and a probe, and the result is a
// verdict, which others turn into conditions, routes and metrics.
//
// One goroutine per target probes it, so a target that hangs delays nobody
// else. The states of a target:
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
// every Schedule.Suspect. A refused connection is decisive: no process listens there.
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

// Probe asks a target once. ctx carries the timeout, which is for the header of the answer:
// a probe that reads a document may read longer, and then bounds that itself.
type Probe func(ctx context.Context) error

// Target is something to check. A target whose Version changes (with the same
// ID) is checked anew, from its Verdict.
type Target struct {
	ID string
	// Version distinguishes probes of one ID that ask different questions
	// (another address, another CA).
	Version string
	Probe   Probe
	// Verdict is what is known of it before its first probe, if it is checked
	// anew: who asks differently from now on need not forget what was found.
	Verdict Verdict
	// Schedule overrides the Checker's where it is not zero. That of a target
	// whose Version is the same holds from its next probe on.
	Schedule Schedule
	// OnChange, if not nil, is told of every new verdict before the Checker's is,
	// under the same rules.
	OnChange func(Verdict)
}

// Schedule is how often a target is probed, and what follows from it.
type Schedule struct {
	// Interval between probes of a healthy target. Default 5 s. It is made up to
	// a tenth shorter, so that targets that began together do not stay so.
	Interval time.Duration
	// Suspect is the interval between probes of any other target. Default
	// 500 ms.
	Suspect time.Duration
	// Timeout of one probe. Default 1 s.
	Timeout time.Duration
	// Fall is how many failures in a row make a healthy target unhealthy.
	// Default 3. A decisive failure needs only one.
	Fall int
	// Rise is how many good probes in a row make it healthy again. Default 2.
	Rise int
}

// or returns the schedule with another's values where it has none.
func (s Schedule) or(other Schedule) Schedule {
	return Schedule{
		Interval: cmp.Or(s.Interval, other.Interval), Suspect: cmp.Or(s.Suspect, other.Suspect), Timeout: cmp.Or(s.Timeout, other.Timeout),
		Fall: cmp.Or(s.Fall, other.Fall), Rise: cmp.Or(s.Rise, other.Rise),
	}
}

// Verdict is what is known of a target.
type Verdict struct {
	// Known is false until the first probe has ended.
	Known   bool
	Healthy bool
	// Err is the last failure; nil while healthy.
	Err error
	// Since is when Healthy last changed.
	Since time.Time
	// Earlier is true while this is what was found of an earlier Version, until probes
	// of this one say the same or something else.
	Earlier bool
}

// Config of a Checker. The zero value of a field means its default.
type Config struct {
	Schedule Schedule
	// OnChange is told of every new verdict, from the target's goroutine. It
	// must not call the Checker back with Set. Required.
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

// Set makes targets the whole set that is checked. Targets with the same ID
// and Version go on undisturbed; those no longer named are forgotten.
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

// start begins to probe a target once Run has; mu is held.
func (c *Checker) start(t *target) {
	if c.ctx == nil || c.ctx.Err() != nil {
		return
	}
	ctx, stop := context.WithCancel(c.ctx)
	t.stop = stop
	c.done.Go(func() { t.run(ctx) })
}

// Verdict returns what is known of a target; the zero Verdict if nothing is.
func (c *Checker) Verdict(id string) Verdict {
	t := c.target(id)
	if t == nil {
		return Verdict{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.verdict
}

// Suspect reports that a request to the target failed or that a connection to
// it broke: it is probed at once, and again soon until it proves healthy. Of one
// whose last probe failed that is known, and changes nothing; nor does what a probe
// that fails reports itself.
func (c *Checker) Suspect(id string) {
	if t := c.target(id); t != nil && !t.failing.Load() {
		t.hurry()
	}
}

// Hurry has the target probed at once: there is a reason to think that it is well.
func (c *Checker) Hurry(id string) {
	if t := c.target(id); t != nil {
		t.hurried.Store(true)
		t.hurry()
	}
}

// target returns one that is checked; nil: there is none of that id.
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
	hurried  atomic.Bool              // somebody said since the last probe began that it may be well

	mu      sync.Mutex
	verdict Verdict

	good, bad int // results in a row; used by run only
}

// run probes until ctx ends.
func (t *target) run(ctx context.Context) {
	for woken := false; ctx.Err() == nil; {
		started := time.Now()
		t.hurried.Store(false)
		err := t.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := t.judge(err) - time.Since(started)
		t.failing.Store(err != nil)
		if err != nil && !t.hurried.Load() {
			select {
			case <-t.wake: // something failed, perhaps this probe
			default:
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.wake:
			gap := suspectGap
			if woken && err == nil { // the one before was for nothing
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

// hurry has the next probe begin.
func (t *target) hurry() {
	select {
	case t.wake <- struct{}{}:
	default: // it is due already
	}
}

// suspectGap bounds how often that can cause a probe, until one has found nothing:
// what is under suspicion all the time, and well, is probed as often as what is suspect.
const suspectGap = 50 * time.Millisecond

// pause keeps a storm of calls from becoming a storm of probes.
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

func (t *target) probe(ctx context.Context) error {
	timeout := t.schedule.Load().Timeout
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := t.Probe(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("timed out after %v: %w", timeout, err)
	}
	return err
}

// judge takes one result into account and returns the time to the next probe,
// counted from the beginning of this one.
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
		return min(schedule.Suspect, suspectGap) // it is well again, most likely
	}
	return schedule.Suspect
}

func sameText(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}

// decisive reports whether the error proves by itself that nobody listens:
// the connection was refused, or the unix socket is gone.
func decisive(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}
