package balance

import (
	"math"
	"slices"
	"time"
)

const (
	// shareUnit is the factor of weights while shares grow, so that a small part of a
	// small weight is a whole number.
	shareUnit = 1000
	// growSteps is in how many steps a share grows, none of them shorter than growStep.
	growSteps = 20
	growStep  = 50 * time.Millisecond
)

// SlowStart is how the share of an endpoint grows that begins to get requests.
type SlowStart struct {
	// Window is how long it grows; 0: it has its weight at once.
	Window time.Duration
	// MinPercent of its weight is what it has at least. It grows by the power of
	// 100/Aggression of the time passed; Aggression 0 gives it its weight at once.
	MinPercent, Aggression int
}

// Part returns the part of its weight, up to 1, that an endpoint has at now if it began
// at since; zero: it has all of it.
func (s SlowStart) Part(since, now time.Time) float64 {
	if since.IsZero() || s.Aggression <= 0 || s.Window <= 0 {
		return 1
	}
	passed := float64(now.Sub(since)) / float64(s.Window)
	part := max(float64(s.MinPercent)/100, math.Pow(max(passed, 0), 100/float64(s.Aggression)))
	return min(1, part)
}

// grow sets the shares that candidates have at now, and returns when they next change;
// zero: none grows. A candidate alone has nothing to grow to.
func grow[E Endpoint](s SlowStart, list []Candidate[E], now time.Time) (next time.Time) {
	grown := func(c Candidate[E]) bool { return s.Part(c.Since, now) < 1 }
	if len(list) < 2 || !slices.ContainsFunc(list, grown) {
		for i := range list {
			list[i].Share = list[i].Weight
		}
		return time.Time{}
	}
	for i, c := range list {
		list[i].Share = max(1, int(shareUnit*s.Part(c.Since, now)*float64(c.Weight)))
	}
	return now.Add(max(s.Window/growSteps, growStep))
}
