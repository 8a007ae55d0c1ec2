package balance

import (
	"math"
	"slices"
	"time"

	"portico/apiservice/backend"
)

const (
	// shareUnit is the factor of weights while shares grow, so that a small part of a
	// small weight is a whole number.
	shareUnit = 1000
	// growSteps is in how many steps a share grows, none of them shorter than growStep.
	growSteps = 20
	growStep  = 50 * time.Millisecond
)

// Part returns the part of its weight, up to 1, that an endpoint has at now if it began
// to get requests at since; zero: it has all of it. It grows from the least part by the
// power of 100/aggression of the time passed. By hash every endpoint has its users from
// the beginning.
func Part(p *backend.Policy, since, now time.Time) float64 {
	s := p.SlowStart
	if since.IsZero() || s.AggressionPercent <= 0 || s.Window <= 0 || p.Balance == backend.ConsistentHash {
		return 1
	}
	passed := float64(now.Sub(since)) / float64(s.Window)
	part := math.Pow(max(passed, 0), 100/float64(s.AggressionPercent))
	return min(1, max(float64(s.MinWeightPercent)/100, part))
}

// grow sets the shares that candidates have at now, and returns when they next change;
// zero: none grows. The only candidate has its share at once.
func grow[E Endpoint](p *backend.Policy, list []Candidate[E], now time.Time) (next time.Time) {
	growing := func(c Candidate[E]) bool { return Part(p, c.Since, now) < 1 }
	if len(list) < 2 || !slices.ContainsFunc(list, growing) {
		for i := range list {
			list[i].Share = list[i].Weight
		}
		return time.Time{}
	}
	for i, c := range list {
		list[i].Share = max(1, int(shareUnit*Part(p, c.Since, now)*float64(c.Weight)))
	}
	return now.Add(max(p.SlowStart.Window/growSteps, growStep))
}
