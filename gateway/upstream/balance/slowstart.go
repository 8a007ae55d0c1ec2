package balance

import (
	"math"
	"time"
)

// SlowStart is how the share of an endpoint grows that gets requests again.
type SlowStart struct {
	// Window is how long it grows.
	Window time.Duration
	// MinPercent of its weight is what it has at least. It grows by the power of
	// 100/Aggression of the time passed; Aggression 0 gives it its weight at once.
	MinPercent, Aggression int
}

// Part returns which part of its weight an endpoint has, up to 1, that gets requests
// again since a time; zero: it always did.
func (s SlowStart) Part(since, now time.Time) float64 {
	if since.IsZero() || s.Aggression <= 0 {
		return 1
	}
	passed := float64(now.Sub(since)) / float64(s.Window)
	part := max(float64(s.MinPercent)/100, math.Pow(max(passed, 0), 100/float64(s.Aggression)))
	return min(1, part)
}
