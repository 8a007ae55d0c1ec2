// Package busypoll keeps a process awake for a moment after each request, so that
// it need not be woken for what comes next: the server's answer, another request.
//
// A processor that has nothing to do halts. Waking it takes tens of microseconds on
// a virtual machine, where the host has to have it run again, and somewhat less
// where it had lowered its clock; who passes a request on waits for that twice. For
// somebody who has processors of his own for a gateway and wants its answers soon,
// it can look for work instead of sleeping, as HAProxy does with "busy-polling" and
// Linux with halt_poll_ns.
//
// Decisions that shaped it:
//
//   - It is off unless asked for. A process that looks for work looks busy: who
//     scales or bills by processor time sees a gateway at work that has half of it
//     to spare, and one that shares its processors takes them from others.
//   - It looks for a bounded time after the last sign of traffic, and sleeps then: a
//     gateway without traffic costs nothing.
//   - It needs nothing of Go's runtime that is not public. The runtime asks the
//     kernel for events, without waiting for any, when there is nothing else to run;
//     only if none came it waits. So a goroutine that waits for a descriptor which
//     is always about to be ready has it ask once for each time that it waits, and
//     never wait. Everything that can run runs first.
//   - It is for a process with one processor (GOMAXPROCS=1). With more, one that
//     always finds an event of its own would never take over what waits at others:
//     with two, goroutines that had work to do waited for 5 ms and timers were up to
//     125 ms late. A process that gets more of them sleeps as usual from then on.
//
// Measured in its first form with one processor of a virtual machine, 5,000 requests
// a second: the gateway added 0.17 ms to a request over HTTP/1.1 and 0.20 over HTTP/2
// at the median with 100 µs, 0.31 and 0.48 without, in runs one after the other; its
// processor was busy all the time then, and 65 to 75 % without.
//
// Runs in: gateway.
package busypoll

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource/netround"
)

// Max is the longest time to look for work. With more, a hundred requests a second
// would keep a process from ever sleeping.
const Max = 10 * time.Millisecond

// ErrUnsupported says that it cannot be done on this system.
var ErrUnsupported = errors.New("busy polling is for Linux")

// reviewTime is how often a process that has got more processors looks whether it has
// one again.
const reviewTime = time.Second

// reviewRounds is how often one that looks for work does, in rounds: within some
// milliseconds.
const reviewRounds = 1024

// Poller keeps a process awake after each Touch. Make it with New, then Run it
// once. A nil Poller keeps nobody awake.
type Poller struct {
	length time.Duration
	log    *slog.Logger
	// touched counts signs of traffic. asleep says that Run waits for the next one
	// in wake, which has room for it: whoever sets asleep back sends.
	touched atomic.Uint64
	asleep  atomic.Bool
	wake    chan struct{}

	rounds atomic.Uint64
}

// Config is what a Poller needs.
type Config struct {
	// For is how long to look for work after the last sign of traffic: more than 0
	// and no more than Max. Some 100 µs bridge what lies between 5,000 requests a
	// second, and the time that a quick server takes.
	For time.Duration
	// Registry gets portico_busy_polls_total; nil: nobody sees it.
	Registry prometheus.Registerer
	// Logger is told when the process has not one processor any more, nil:
	// slog.Default().
	Logger *slog.Logger
}

// New checks the configuration, and that the process has one processor; it starts
// nothing. On systems that have no such thing it fails with ErrUnsupported.
func New(cfg Config) (*Poller, error) {
	if cfg.For <= 0 || cfg.For > Max {
		return nil, fmt.Errorf("poll busily for %v: the time must be more than 0 and no more than %v", cfg.For, Max)
	}
	if !netround.Supported {
		return nil, ErrUnsupported
	}
	if n := runtime.GOMAXPROCS(0); n != 1 {
		return nil, fmt.Errorf("poll busily: it is for a process that has one processor, and this one has %d; start it with GOMAXPROCS=1 in its environment", n)
	}
	p := &Poller{length: cfg.For, log: cfg.Logger, wake: make(chan struct{}, 1)}
	if p.log == nil {
		p.log = slog.Default()
	}
	if cfg.Registry != nil {
		err := cfg.Registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "portico_busy_polls_total",
			Help: "Times that the process looked for something to do where it would have slept (--busy-poll).",
		}, func() float64 { return float64(p.rounds.Load()) }))
		if err != nil {
			return nil, fmt.Errorf("register metrics of busy polling: %w", err)
		}
	}
	return p, nil
}

// Touch is a sign of traffic: something more may come soon. It costs some
// nanoseconds. Safe for concurrent use.
func (p *Poller) Touch() {
	if p == nil {
		return
	}
	p.touched.Add(1)
	if p.asleep.Load() && p.asleep.CompareAndSwap(true, false) {
		p.wake <- struct{}{}
	}
}

// Run keeps the process awake until ctx ends, and returns its error, or why it
// cannot be done; nil for a nil Poller, at once.
func (p *Poller) Run(ctx context.Context) error {
	if p == nil {
		return nil
	}
	e, err := netround.New()
	if err != nil {
		return fmt.Errorf("poll busily: %w", err)
	}
	defer e.Close()
	for seen := uint64(0); ; {
		if err := p.sleep(ctx, seen); err != nil {
			return err
		}
		if runtime.GOMAXPROCS(0) != 1 {
			p.rest(ctx)
			continue
		}
		if seen, err = p.look(ctx, e); err != nil {
			return fmt.Errorf("poll busily: %w", err)
		}
	}
}

// sleep waits for a sign that has not been seen.
func (p *Poller) sleep(ctx context.Context, seen uint64) error {
	p.asleep.Store(true)
	if p.touched.Load() != seen && p.asleep.CompareAndSwap(true, false) {
		return ctx.Err() // it came just before, and told nobody
	}
	select {
	case <-p.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rest waits, deaf to signs, until the process has one processor.
func (p *Poller) rest(ctx context.Context) {
	p.log.Warn("busy polling pauses: the process has more than one processor", "GOMAXPROCS", runtime.GOMAXPROCS(0))
	tick := time.NewTicker(reviewTime)
	defer tick.Stop()
	for runtime.GOMAXPROCS(0) != 1 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	p.log.Info("busy polling goes on")
}

// look looks for work until the time is up, and returns how many signs it has
// seen.
func (p *Poller) look(ctx context.Context, e *netround.Round) (seen uint64, err error) {
	seen = p.touched.Load()
	for until := time.Now().Add(p.length); ctx.Err() == nil; {
		if p.rounds.Add(1)%reviewRounds == 0 && runtime.GOMAXPROCS(0) != 1 {
			break
		}
		if err := e.Pass(); err != nil {
			return seen, err
		}
		now := time.Now()
		if n := p.touched.Load(); n != seen {
			seen, until = n, now.Add(p.length)
		} else if !now.Before(until) {
			break
		}
	}
	return seen, nil
}
