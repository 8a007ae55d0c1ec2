package loop

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait between attempts: Initial at first, then
// Factor times longer each time, never more than Max. Each wait is drawn at
// random from the upper half of its length, so that loops that failed together
// do not come back together. The zero Backoff is 100 ms doubling to 10 s.
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

// delay returns how long to wait after the failed attempt of that number,
// counted from 0.
func (b Backoff) delay(attempt int) time.Duration {
	d := float64(b.Initial)
	for ; attempt > 0 && d < float64(b.Max); attempt-- {
		d *= b.Factor
	}
	d = min(d, float64(b.Max))
	return time.Duration(d/2 + rand.Float64()*d/2)
}

// Retry calls f until it returns nil or ctx ends, waiting between attempts as
// backoff says. It returns nil or ctx's error; f's errors are f's to log.
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

// pause waits for d, or until ctx ends: then it returns ctx's error.
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
