// Package loop has the building blocks of control loops: [Follow] turns a store's list and
// watch into whole snapshots, [Signal] wakes a loop once for many reasons, [Retry] repeats
// with a backoff, and [Together] runs loops that end as one.
//
// A loop reconciles a whole state, never an event, so a missed or repeated event does no
// harm. While a store does not answer, nothing is published and the last state remains; an
// empty snapshot means that the store is empty.
//
// Runs in: gateway, core, crd.
package loop

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Signal wakes one loop. Any number of calls of Set before the loop receives count as one.
// The zero Signal is ready; it must not be copied. Safe for concurrent use.
type Signal struct {
	once sync.Once
	ch   chan struct{}
}

// Set makes one receive from C succeed. It never blocks.
func (s *Signal) Set() {
	select {
	case s.channel() <- struct{}{}:
	default:
	}
}

// C returns the channel that receives after Set.
func (s *Signal) C() <-chan struct{} { return s.channel() }

func (s *Signal) channel() chan struct{} {
	s.once.Do(func() { s.ch = make(chan struct{}, 1) })
	return s.ch
}

// Backoff is the wait between attempts: Initial at first, then Factor times longer each
// time, at most Max. Each wait is random between half of that and all of it, so that loops
// that fail together do not retry together. The zero Backoff is 100 ms doubling to 10 s.
type Backoff struct {
	Initial, Max time.Duration
	Factor       float64
}

func (b Backoff) withDefaults() Backoff {
	if b.Initial <= 0 {
		b.Initial = 100 * time.Millisecond
	}
	if b.Max <= 0 {
		b.Max = 10 * time.Second
	}
	if b.Factor < 1 {
		b.Factor = 2
	}
	return b
}

// delay returns the wait after a failed attempt; attempts are counted from 0.
func (b Backoff) delay(attempt int) time.Duration {
	d := float64(b.Initial)
	for ; attempt > 0 && d < float64(b.Max); attempt-- {
		d *= b.Factor
	}
	d = min(d, float64(b.Max))
	return time.Duration(d/2 + rand.Float64()*d/2)
}

// Retry calls f until it returns nil or ctx ends, and returns nil or ctx's error. f logs
// its own errors.
func Retry(ctx context.Context, backoff Backoff, f func(ctx context.Context) error) error {
	backoff = backoff.withDefaults()
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if f(ctx) == nil {
			return nil
		}
		if err := pause(ctx, backoff.delay(attempt)); err != nil {
			return err
		}
	}
}

// pause waits for d. If ctx ends first, it returns ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Together runs functions until the first of them ends, then cancels the others and waits
// for them. It returns the result of the first.
func Together(ctx context.Context, run ...func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, f := range run {
		wg.Go(func() {
			err := f(ctx)
			once.Do(func() { first = err })
			cancel()
		})
	}
	wg.Wait()
	return first
}
