package upstream

import (
	"net/http"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/gateway/upstream/balance"
	"portico/resource"
)

// EndpointStatus is the state of an endpoint. Counters only grow, while the endpoint is
// one of the server's.
type EndpointStatus struct {
	URL    string
	Weight int
	State  backend.EndpointState
	// Since is when State changed last.
	Since time.Time
	// LastError is why it is not healthy, or was not before, since LastErrorAt.
	LastError   string
	LastErrorAt time.Time

	// Grown is the part of its weight that it has now: less than 1 while its share grows.
	Grown float64

	// Active is the requests in progress, including long-running ones.
	Active int64
	// Errors are requests that failed (no answer, or a 5xx), Retries those that were sent
	// to it after another attempt.
	Errors, Retries, Ejections uint64
}

// Status is the state of a server.
type Status struct {
	Endpoints []EndpointStatus
	// Active requests hold slots of the limit; Waiting ones are in the queue.
	Active, Waiting int64
	// Overflowed requests found the queue full; OutOfBudget ones were not repeated because
	// the budget was empty.
	Overflowed, OutOfBudget uint64
}

// Status returns the state of the server.
func (u *Upstream) Status() Status {
	s := Status{
		Active: int64(u.limit.active.InUse()), Waiting: int64(u.limit.waiting.InUse()),
		Overflowed: u.overflowed.Load(), OutOfBudget: u.outOfBudget.Load(),
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	s.Endpoints = make([]EndpointStatus, 0, len(u.endpoints))
	policy, now := u.policy.Load(), time.Now()
	for _, e := range u.endpoints {
		s.Endpoints = append(s.Endpoints, EndpointStatus{
			URL: e.URL, Weight: e.Weight, State: e.state, Since: e.since, LastError: e.health.LastError, LastErrorAt: e.health.LastErrorAt,
			Grown:  balance.Part(&policy.Policy, e.growsSince, now),
			Active: e.active.Load(), Errors: e.errors.Load(),
			Retries: e.retries.Load(), Ejections: e.ejections.Load(),
		})
	}
	return s
}

// Answers returns how many requests of clients an endpoint has answered, without errors of its own; 0
// if there is no such endpoint.
func (u *Upstream) Answers(url string) uint64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.find(url); e != nil {
		return e.answers.Load()
	}
	return 0
}

// Verdict returns the last verdict of an endpoint that was set; the zero Verdict if none
// was, or there is no such endpoint.
func (u *Upstream) Verdict(url string) availability.Verdict {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.find(url); e != nil {
		return e.health.Verdict
	}
	return availability.Verdict{}
}

// Verdicts returns the last verdicts of the endpoints with a weight above 0. If there are
// only others, it returns a single bad one, with [ErrAllDrained] and the time since when
// that is so: no request is answered, whatever the checks say.
func (u *Upstream) Verdicts() []availability.Verdict {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]availability.Verdict, 0, len(u.endpoints))
	drained := availability.Verdict{Known: true, Err: ErrAllDrained}
	for _, e := range u.endpoints {
		if e.Weight > 0 {
			out = append(out, e.health.Verdict)
		} else if e.since.After(drained.Since) {
			drained.Since = e.since
		}
	}
	if len(out) == 0 && len(u.endpoints) > 0 {
		return []availability.Verdict{drained}
	}
	return out
}

// Candidate is an endpoint that a request could be sent to now.
type Candidate struct {
	URL string
	// Share of the requests that it gets by its weight, in percent.
	Share float64
}

// Explain returns the policy by which the endpoint of a request would be chosen, and the
// candidates. If there is none, err says why. Nothing is sent, and the turns of
// RoundRobin do not advance.
func (u *Upstream) Explain(req *http.Request) (policy backend.Balance, candidates []Candidate, err error) {
	b := u.balancer.Load()
	policy = b.policy.Balance
	if b.only != nil {
		return policy, []Candidate{{b.only.URL, 100}}, nil
	}
	if len(b.List) == 0 {
		return policy, nil, noEndpoint(b.err)
	}
	sum := 0
	for _, c := range b.List {
		sum += c.Share
	}
	for _, c := range b.List {
		candidates = append(candidates, Candidate{c.Endpoint.URL, float64(c.Share) * 100 / float64(sum)})
	}
	act := resource.ActionFrom(req.Context())
	if policy == backend.ConsistentHash && act != nil && act.User != nil {
		return policy, []Candidate{{b.ByHash(act.User.Name).URL, 100}}, nil
	}
	return policy, candidates, nil
}
