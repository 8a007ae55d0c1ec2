package upstream

import (
	"time"

	"portico/apiservice/backend"
	"portico/gateway/upstream/balance"
)

const (
	// shareUnit is the factor of weights while shares grow, so that a small part of a
	// small weight is a whole number.
	shareUnit = 1000
	// growSteps is in how many steps a share grows, none of them shorter than growStep.
	growSteps = 20
	growStep  = 50 * time.Millisecond
)

func (p *Policy) slowStart() balance.SlowStart {
	return balance.SlowStart{Window: p.SlowStart, MinPercent: p.SlowPercent, Aggression: p.Aggression}
}

// beginSlowStart records which endpoints get requests from now on, and since when the
// share of those that come to others grows. Endpoints that begin together have their
// shares at once. mu is held.
func (u *Upstream) beginSlowStart(list []candidate, policy *Policy, now time.Time) {
	others := false
	for _, e := range u.endpoints {
		others = others || e.used
	}
	used := make(map[*endpoint]bool, len(list))
	for _, c := range list {
		e := c.Endpoint
		used[e] = true
		if out := e.state != backend.EndpointHealthy && e.state != backend.EndpointUnknown; others && !e.used && !out {
			e.growsSince = now
		}
		if now.Sub(e.growsSince) >= policy.SlowStart {
			e.growsSince = time.Time{}
		}
	}
	for _, e := range u.endpoints {
		if e.used = used[e]; !e.used {
			e.growsSince = time.Time{}
		}
	}
}

// growShares gives the candidates their part of their weights. While one grows, there
// is a new snapshot for each step. By hash every endpoint has its users from the
// beginning. mu is held.
func (u *Upstream) growShares(list []candidate, policy *Policy, now time.Time) {
	stop(&u.growing)
	growing := false
	for _, c := range list {
		growing = growing || !c.Endpoint.growsSince.IsZero()
	}
	if !growing || len(list) < 2 || policy.Balance == backend.ConsistentHash {
		return
	}
	for i := range list {
		part := list[i].Endpoint.part(policy, now)
		list[i].Weight = max(1, int(shareUnit*part*float64(list[i].FullWeight)))
	}
	u.start(&u.growing, max(policy.SlowStart/growSteps, growStep), func() {})
}

// part is which part of its weight an endpoint has, up to 1; mu is held.
func (e *endpoint) part(p *Policy, now time.Time) float64 {
	if p.Balance == backend.ConsistentHash {
		return 1
	}
	return p.slowStart().Part(e.growsSince, now)
}
