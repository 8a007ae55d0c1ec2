package upstream

import (
	"fmt"
	"net/http"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/gateway/upstream/balance"
	"portico/gateway/upstream/health"
	"portico/gateway/upstream/transport"
)

// balancer is an immutable snapshot of the endpoints that get requests.
type balancer struct {
	*balance.Balancer[*endpoint]
	policy *Policy
	// only is the only endpoint there is; it gets requests whatever its state.
	only *endpoint
	err  error // why List is empty, if it is
	// slow: no endpoint passes its checks, and those in List have not answered them in time. They
	// get requests all the same, as they may only be busy.
	slow bool
}

// slowWait is how long a request waits for a server that does not answer its checks in time.
const slowWait = 10 * time.Second

// Slow reports whether requests are sent to endpoints that do not answer their checks in time,
// because there are no others.
func (u *Upstream) Slow() bool { return u.balancer.Load().slow }

// isSlow reports whether an error of a check says that there was no answer in time from an address
// that can be connected to.
func isSlow(err error) bool {
	return is[*availability.TimeoutError](err) && !is[*transport.ConnectError](err)
}

type candidate = balance.Candidate[*endpoint]

// elsewhere reports whether requests go to other endpoints only.
func (b *balancer) elsewhere(e *endpoint) bool { return len(b.List) > 0 && !b.Has(e) }

// multiplexes reports whether long-running requests share connections at every
// endpoint, as far as is known.
func (b *balancer) multiplexes() bool {
	if b.only != nil {
		return b.only.transport.Multiplexes()
	}
	for i := range b.List {
		if !b.List[i].Endpoint.transport.Multiplexes() {
			return false
		}
	}
	return true
}

// rebuild computes the states of the endpoints, publishes those that get requests, and
// sets a timer for the next change. mu is held.
func (u *Upstream) rebuild() {
	policy, now := u.policy.Load(), time.Now()
	changed := u.updateStates(now)
	var passing, slow []candidate
	all, err := 0, errNoEndpoints
	for _, e := range u.endpoints {
		if e.Weight == 0 {
			continue
		}
		all++
		c := candidate{Endpoint: e, Weight: e.Weight, Refused: e.health.Refused(now), Ejected: e.health.Ejected(now)}
		switch {
		case e.health.Passes():
			passing = append(passing, c)
		case isSlow(e.health.Verdict.Err):
			slow = append(slow, c)
			fallthrough
		default:
			err = fmt.Errorf("%s: %w", e.URL, e.health.Verdict.Err)
		}
	}
	lastResort := len(passing) == 0 && len(slow) > 0
	if lastResort {
		passing = slow
	}
	if all == 0 && len(u.endpoints) > 0 {
		err = ErrAllDrained
	}
	list := balance.Preferred(passing, all, policy.PanicThresholdPercent)
	u.beginSlowStart(list, now)
	b := &balancer{policy: policy, err: err, slow: lastResort}
	var before *balance.Balancer[*endpoint]
	if old := u.balancer.Load(); old != nil {
		before = old.Balancer
	}
	b.Balancer = balance.New(&policy.Policy, list, before, now)
	if len(u.endpoints) == 1 && u.endpoints[0].Weight > 0 {
		b.only = u.endpoints[0]
	}
	u.balancer.Store(b)
	u.drainUnused(b)
	u.setTimer(now, b.Next)
	if changed {
		u.changed()
	}
}

// updateStates reports whether the state of an endpoint has changed; mu is held.
func (u *Upstream) updateStates(now time.Time) (changed bool) {
	for _, e := range u.endpoints {
		state := e.health.State(now)
		if e.Weight == 0 {
			state = backend.EndpointDraining
		}
		if state != e.state {
			e.state, e.since, changed = state, now, true
		}
	}
	return changed
}

// beginSlowStart records which endpoints get requests. The share of one that joins
// others grows from now on; endpoints that begin together have their shares at once. mu
// is held.
func (u *Upstream) beginSlowStart(list []candidate, now time.Time) {
	others := false
	for _, e := range u.endpoints {
		others = others || e.used
	}
	used := make(map[*endpoint]bool, len(list))
	for i, c := range list {
		e := c.Endpoint
		used[e] = true
		healthy := e.state == backend.EndpointHealthy || e.state == backend.EndpointUnknown
		if others && !e.used && healthy {
			e.growsSince = now
		}
		list[i].Since = e.growsSince
	}
	for _, e := range u.endpoints {
		if e.used = used[e]; !e.used {
			e.growsSince = time.Time{}
		}
	}
}

// setTimer has the state computed again when a refusal or ejection ends, or shares
// grow. mu is held.
func (u *Upstream) setTimer(now, next time.Time) {
	if u.timer != nil {
		u.timer.Stop()
		u.timer = nil
	}
	for _, e := range u.endpoints {
		if t := e.health.Next(now); !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if next.IsZero() || u.closed {
		return
	}
	u.timer = time.AfterFunc(next.Sub(now), func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if !u.closed {
			u.rebuild()
		}
	})
}

// SetVerdict sets the result of the active check of an endpoint. An endpoint that fails
// its check gets no requests, unless it is one of the last and only slow, and its connections are
// replaced: one may be dead without notice. If it does not answer at all, safe requests that wait
// for it are sent to others.
func (u *Upstream) SetVerdict(url string, v availability.Verdict) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.find(url)
	if e == nil {
		return
	}
	fell := e.health.SetVerdict(v, time.Now())
	u.rebuild()
	if !fell {
		return
	}
	e.transport.Renew()
	if len(u.endpoints) > 1 && !is[*AnswerError](v.Err) {
		e.cancelWaiting()
	}
}

// connectionFailed records that a connection could not be made, or broke.
func (u *Upstream) connectionFailed(e *endpoint, err error) {
	e.errors.Add(1)
	u.broken(e.URL)
	if health.IsRefused(err) {
		u.refuse(e, err)
	} else if e.health.Connections.Failed(u.policy.Load().Outlier.ConsecutiveLocalErrors) {
		u.eject(e, true, err)
	}
}

// answerFailed records that the server answered with an error of its own.
func (u *Upstream) answerFailed(e *endpoint, code int) {
	e.errors.Add(1)
	if e.health.Answers.Failed(u.policy.Load().Outlier.ConsecutiveErrors) {
		u.eject(e, false, &AnswerError{code})
	}
}

// timedOut records that an endpoint did not begin its answer in time. It counts as a
// failed answer: an endpoint that hangs is ejected, even if it passes its checks.
func (u *Upstream) timedOut(e *endpoint) {
	u.broken(e.URL)
	if u.rest {
		e.errors.Add(1)
		return
	}
	u.answerFailed(e, http.StatusGatewayTimeout)
}

// refuse keeps requests from an endpoint that does not listen.
func (u *Upstream) refuse(e *endpoint, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := time.Now(); !e.health.Refused(now) && len(u.endpoints) > 1 && !u.gone(e) {
		e.health.Refuse(now, err)
		u.rebuild()
	}
}

// eject keeps requests from an endpoint for a while, if enough others are left.
// connections: for its connections.
func (u *Upstream) eject(e *endpoint, connections bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if e.health.Ejected(now) || u.gone(e) || !u.mayEject(e, now) {
		return
	}
	p := u.policy.Load()
	e.ejections.Add(1)
	e.health.Eject(now, p.Outlier.BaseEjectionTime, p.Outlier.MaxEjectionTime, connections, err)
	u.rebuild()
}

// mayEject reports whether another endpoint may be ejected; mu is held. One may always
// be, however small the share is that is allowed, but never the last.
func (u *Upstream) mayEject(e *endpoint, now time.Time) bool {
	percent := u.policy.Load().Outlier.MaxEjectionPercent
	ejected, left := 0, 0
	for _, other := range u.endpoints {
		switch h := &other.health; {
		case h.Ejected(now):
			ejected++
		case other != e && other.Weight > 0 && h.Passes() && !h.Refused(now):
			left++
		}
	}
	return percent > 0 && left > 0 && (ejected == 0 || (ejected+1)*100 <= percent*len(u.endpoints))
}

// gone reports whether an endpoint is no longer one of the server's; mu is held.
func (u *Upstream) gone(e *endpoint) bool { return u.closed || u.find(e.URL) != e }
