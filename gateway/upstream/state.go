package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"syscall"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/gateway/upstream/balance"
)

// refusedFor is how long an endpoint that refused a connection gets no requests, if
// its active check does not say otherwise before.
const refusedFor = 2 * time.Second

// balancer is an immutable snapshot of the endpoints that get requests.
type balancer struct {
	*balance.Balancer[*endpoint]
	policy *Policy
	// only is the one endpoint there is; it gets requests whatever its state.
	only *endpoint
	err  error // why there may be none
}

// elsewhere reports whether requests go to other endpoints only.
func (b *balancer) elsewhere(e *endpoint) bool { return len(b.List) > 0 && !b.Has(e) }

// rebuild works out the states, and which endpoints get requests; mu is held.
func (u *Upstream) rebuild() {
	policy := u.policy.Load()
	now := time.Now()
	changed := false
	var list []candidate
	all, lastErr := 0, errNoEndpoints
	for _, e := range u.endpoints {
		if state := e.current(); state != e.state {
			e.state, e.since, changed = state, now, true
		}
		if e.Weight == 0 {
			continue
		}
		all++
		if e.usable() {
			list = append(list, candidate{Endpoint: e, Weight: e.Weight, FullWeight: e.Weight})
		} else {
			lastErr = fmt.Errorf("%s: %w", e.URL, e.verdict.Err)
		}
	}
	switch {
	case all > 0 || len(u.endpoints) == 0:
		u.drained = time.Time{}
	default:
		lastErr = ErrAllDrained
		if u.drained.IsZero() {
			u.drained = now
		}
	}
	list = inUse(list, all, policy.PanicPercent)
	u.beginSlowStart(list, policy, now)
	u.growShares(list, policy, now)
	b := &balancer{policy: policy, err: lastErr}
	var before *balance.Balancer[*endpoint]
	if old := u.balancer.Load(); old != nil {
		before = old.Balancer
	}
	b.Balancer = balance.New(policy.Balance, list, before)
	if len(u.endpoints) == 1 && u.endpoints[0].Weight > 0 {
		b.only = u.endpoints[0]
	}
	u.balancer.Store(b)
	u.moveWatches(len(list) > 0)
	if changed {
		u.changed()
	}
}

type candidate = balance.Candidate[*endpoint]

// inUse leaves out, of the endpoints that pass their checks, those that refused
// connections or are ejected; unless too few of all would be left.
func inUse(list []candidate, all, panicPercent int) []candidate {
	listening := slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return c.Endpoint.refused != nil })
	if len(listening) == 0 {
		return list // one that refused a moment ago is better than none
	}
	good := slices.DeleteFunc(slices.Clone(listening), func(c candidate) bool { return c.Endpoint.ejected != nil })
	if len(good) == 0 || len(good)*100 < panicPercent*all {
		return listening
	}
	return good
}

// SetVerdict takes the result of the active check of an endpoint. An endpoint that
// fails its check gets no requests, even if it is the last, and its connections are
// replaced: one may be dead without notice. If it does not answer at all, safe requests
// that wait for it go to others.
func (u *Upstream) SetVerdict(url string, v availability.Verdict) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.find(url)
	if e == nil {
		return
	}
	fell := v.Known && !v.Healthy && (!e.verdict.Known || e.verdict.Healthy)
	rose := v.Healthy && e.verdict.Known && !e.verdict.Healthy
	if e.verdict = v; v.Err != nil {
		e.lastErr = v.Err.Error()
	}
	if v.Healthy {
		stop(&e.refused)
	}
	if rose { // its failures before count no more
		e.endEjection()
		e.breaker.Reset()
	}
	u.rebuild()
	if !fell {
		return
	}
	e.transport.Renew()
	var answered *AnswerError
	if len(u.endpoints) > 1 && !errors.As(v.Err, &answered) {
		e.pending.cancel(errSilent)
	}
}

// passed records a passed check that changes no verdict.
func (u *Upstream) passed(e *endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.refused == nil && !(e.ejected != nil && e.provisional) {
		return
	}
	stop(&e.refused)
	if e.provisional {
		e.endEjection()
	}
	e.breaker.ConnectionGood()
	u.rebuild()
}

// decisive reports whether an error proves that the endpoint does not listen: the
// connection was refused, or the socket does not exist.
func decisive(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// failedLocally records that the connection failed or broke.
func (u *Upstream) failedLocally(e *endpoint, err error) {
	e.errors.Add(1)
	u.broken(e.URL)
	if decisive(err) {
		u.refuse(e, err)
	} else if e.breaker.ConnectionFailed(u.policy.Load().ConsecutiveLocalErrors) {
		u.eject(e, true, err)
	}
}

// failed records that the server answered with an error of its own.
func (u *Upstream) failed(e *endpoint, code int) {
	e.errors.Add(1)
	if e.breaker.AnswerFailed(u.policy.Load().ConsecutiveErrors) {
		u.eject(e, false, &AnswerError{code})
	}
}

// timedOut records that an endpoint did not begin its answer in time. It counts as an
// answer with an error does: an endpoint that hangs is ejected, even if it still passes
// its checks.
func (u *Upstream) timedOut(e *endpoint) {
	u.broken(e.URL)
	if u.rest {
		e.errors.Add(1)
		return
	}
	u.failed(e, http.StatusGatewayTimeout)
}

// refuse keeps requests from an endpoint that does not listen.
func (u *Upstream) refuse(e *endpoint, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.refused != nil || len(u.endpoints) == 1 || u.gone(e) {
		return
	}
	e.lastErr = err.Error()
	u.start(&e.refused, refusedFor, func() {})
	u.rebuild()
}

// eject keeps requests from an endpoint for a while, if enough others are left.
// connections: for its connections, which a passed check proves wrong if it is the only
// ejection lately; after another, checks prove nothing.
func (u *Upstream) eject(e *endpoint, connections bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.ejected != nil || u.gone(e) || !u.mayEject(e) {
		return
	}
	p := u.policy.Load()
	e.lastErr = err.Error()
	e.breaker.Reset()
	e.ejections.Add(1)
	u.start(&e.ejected, e.history.Begin(p.BaseEjection, p.MaxEjection), e.history.Ended)
	e.provisional = connections && e.history.First()
	u.rebuild()
}

// mayEject reports whether another endpoint may be ejected; mu is held. One may always
// be, however small the share is that is allowed, but never the last.
func (u *Upstream) mayEject(e *endpoint) bool {
	percent := u.policy.Load().MaxEjectionPercent
	out, left := 0, 0
	for _, other := range u.endpoints {
		switch {
		case other.ejected != nil:
			out++
		case other != e && other.Weight > 0 && other.usable() && other.refused == nil:
			left++
		}
	}
	return percent > 0 && left > 0 && (out == 0 || (out+1)*100 <= percent*len(u.endpoints))
}

// gone reports whether an endpoint is no longer one of the server's; mu is held.
func (u *Upstream) gone(e *endpoint) bool { return u.closed || u.find(e.URL) != e }

// usable reports whether the active check lets the endpoint have requests; mu is held.
func (e *endpoint) usable() bool { return !e.verdict.Known || e.verdict.Healthy }

// current works out the state; mu is held.
func (e *endpoint) current() backend.EndpointState {
	switch {
	case e.Weight == 0:
		return backend.EndpointDraining
	case e.verdict.Known && !e.verdict.Healthy || e.refused != nil:
		return backend.EndpointUnhealthy
	case e.ejected != nil:
		return backend.EndpointEjected
	case !e.verdict.Known:
		return backend.EndpointUnknown
	}
	return backend.EndpointHealthy
}

// endEjection ends an ejection before its time; mu is held.
func (e *endpoint) endEjection() {
	if e.ejected != nil {
		stop(&e.ejected)
		e.history.Ended()
	}
}

// period is a time for which something holds of an endpoint.
type period struct{ timer *time.Timer }

// start begins a period in the place of the one there may be. At its end, and not if it
// is stopped before, ended is called. mu is held, then as now.
func (u *Upstream) start(at **period, length time.Duration, ended func()) {
	stop(at)
	s := new(period)
	*at = s
	s.timer = time.AfterFunc(length, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if *at == s {
			*at = nil
			ended()
			u.rebuild()
		}
	})
}

// stop ends a period before its time; mu is held.
func stop(at **period) {
	if *at != nil {
		(*at).timer.Stop()
		*at = nil
	}
}
