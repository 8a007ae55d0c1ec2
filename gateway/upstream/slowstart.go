package upstream

import (
	"math"
	"time"

	"portico/apiservice/backend"
)

const (
	// fullShare is the factor of weights while the share of an endpoint grows, so
	// that a small part of a small weight is a whole number.
	fullShare = 1000
	// warmSteps is in how many steps a share grows, none of them shorter than
	// warmStep.
	warmSteps = 20
	warmStep  = 50 * time.Millisecond
)

// warmUp takes down which endpoints get requests from now on, and since when the
// share of those that come to others grows. Of endpoints that begin together none
// is slower than the rest. mu is held.
func (u *Upstream) warmUp(list []candidate, policy *Policy, now time.Time) {
	others := false
	for _, e := range u.endpoints {
		others = others || e.used
	}
	used := make(map[*endpoint]bool, len(list))
	for _, c := range list {
		e := c.endpoint
		used[e] = true
		if out := e.state != backend.EndpointHealthy && e.state != backend.EndpointUnknown; others && !e.used && !out {
			e.warming = now
		}
		if now.Sub(e.warming) >= policy.SlowStart {
			e.warming = time.Time{}
		}
	}
	for _, e := range u.endpoints {
		if e.used = used[e]; !e.used {
			e.warming = time.Time{}
		}
	}
}

// share gives the candidates their part of their weights, and has it grow: as
// long as that of one does, there is a new snapshot every now and then. By hash
// every endpoint has its users from the beginning. mu is held.
func (u *Upstream) share(list []candidate, policy *Policy, now time.Time) {
	end(&u.warming)
	growing := false
	for _, c := range list {
		growing = growing || !c.warming.IsZero()
	}
	if !growing || len(list) < 2 || policy.Balance == backend.ConsistentHash {
		return
	}
	for i := range list {
		list[i].weight = max(1, int(fullShare*list[i].warmth(policy, now)*float64(list[i].full)))
	}
	u.begin(&u.warming, max(policy.SlowStart/warmSteps, warmStep), func() {})
}

// warmth is which part of its weight an endpoint has, up to 1.
func (e *endpoint) warmth(p *Policy, now time.Time) float64 {
	if e.warming.IsZero() || p.Aggression <= 0 || p.Balance == backend.ConsistentHash {
		return 1
	}
	passed := float64(now.Sub(e.warming)) / float64(p.SlowStart)
	return max(float64(p.SlowPercent)/100, math.Pow(max(passed, 0), 100/float64(p.Aggression)))
}
