package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"portico/apiservice/availability"
)

// refusedFor is how long an endpoint that refused a connection gets no requests
// if its active check does not say otherwise before.
const refusedFor = 2 * time.Second

// errSilent ends requests to an endpoint that does not answer its checks.
var errSilent = errors.New("the endpoint no longer answers")

// AnswerError is of a check that was answered, but not as it should be.
type AnswerError struct{ Code int }

func (e *AnswerError) Error() string { return fmt.Sprintf("bad status: %d", e.Code) }

// SetVerdict takes what the active check says of an endpoint. One that fails
// gets no requests, even if it is the last, and its connections are not used any
// more: a connection may be dead without anybody knowing. If it is silent, safe
// requests that wait for it go to others.
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
		e.refused = false
	}
	if rose { // with what it did before, it is done
		e.ejected.out = false
		e.badAnswers.Store(0)
		e.badConns.Store(0)
	}
	u.rebuild()
	if !fell {
		return
	}
	e.ways.renew()
	var answered *AnswerError
	if len(u.endpoints) > 1 && !errors.As(v.Err, &answered) {
		e.pending.cancel(errSilent)
	}
}

// passed takes a passed check into account, of which no new verdict comes.
func (u *Upstream) passed(e *endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !e.refused && !(e.ejected.out && e.ejected.local) {
		return
	}
	e.refused = false
	if e.ejected.local {
		e.ejected.out = false
	}
	e.badConns.Store(0)
	u.rebuild()
}

// decisive reports whether an error proves that nobody listens: the connection
// was refused, or the socket is gone.
func decisive(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// failedLocally takes into account that the connection failed or broke.
func (u *Upstream) failedLocally(e *endpoint, err error) {
	e.errors.Add(1)
	u.broken(e.URL)
	if decisive(err) {
		u.refuse(e, err)
		return
	}
	p := u.policy.Load()
	if n := int(e.badConns.Add(1)); p.ConsecutiveLocalErrors > 0 && n >= p.ConsecutiveLocalErrors {
		u.eject(e, true, err)
	}
}

// failed takes into account that the server answered with an error of its own.
func (u *Upstream) failed(e *endpoint, code int) {
	e.errors.Add(1)
	p := u.policy.Load()
	if n := int(e.badAnswers.Add(1)); p.ConsecutiveErrors > 0 && n >= p.ConsecutiveErrors {
		u.eject(e, false, &AnswerError{code})
	}
}

// refuse keeps the next request from an endpoint where nobody listens.
func (u *Upstream) refuse(e *endpoint, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.refused || len(u.endpoints) == 1 || u.find(e.URL) != e {
		return
	}
	e.refused, e.lastErr = true, err.Error()
	e.timers[0] = time.AfterFunc(refusedFor, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if e.refused {
			e.refused = false
			u.rebuild()
		}
	})
	u.rebuild()
}

// eject takes an endpoint out for a while, if enough others are left.
func (u *Upstream) eject(e *endpoint, local bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.ejected.out || u.find(e.URL) != e || !u.mayEject(e) {
		return
	}
	p := u.policy.Load()
	now := time.Now()
	x := &e.ejected
	if good := now.Sub(x.until); !x.until.IsZero() && p.BaseEjection > 0 {
		x.times = max(0, x.times-int(good/p.BaseEjection))
	}
	x.times++
	length := min(p.BaseEjection*time.Duration(x.times), p.MaxEjection)
	x.out, x.local, x.until = true, local, now.Add(length)
	e.lastErr = err.Error()
	e.badAnswers.Store(0)
	e.badConns.Store(0)
	e.ejections.Add(1)
	until := x.until
	e.timers[1] = time.AfterFunc(length, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if e.ejected.out && e.ejected.until.Equal(until) {
			e.ejected.out = false
			u.rebuild()
		}
	})
	u.rebuild()
}

// mayEject reports whether an endpoint more may be out; mu is held. One may
// always be, however small the share is that is allowed, but never the last.
func (u *Upstream) mayEject(e *endpoint) bool {
	percent := u.policy.Load().MaxEjectionPercent
	out, left := 0, 0
	for _, other := range u.endpoints {
		switch {
		case other.ejected.out:
			out++
		case other != e && other.Weight > 0 && other.usable() && !other.refused:
			left++
		}
	}
	return percent > 0 && left > 0 && (out == 0 || (out+1)*100 <= percent*len(u.endpoints))
}

// usable reports whether the active check lets the endpoint have requests; mu is
// held.
func (e *endpoint) usable() bool { return !e.verdict.Known || e.verdict.Healthy }

// rebuild works out who gets requests now, and the states; mu is held.
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
			list = append(list, candidate{e, e.Weight})
		} else {
			lastErr = fmt.Errorf("%s: %w", e.URL, e.verdict.Err)
		}
	}
	p := newPicks(policy, inUse(list, all, policy.PanicPercent))
	p.err = lastErr
	if len(u.endpoints) == 1 && u.endpoints[0].Weight > 0 {
		p.only = u.endpoints[0]
	}
	u.picks.Store(p)
	if changed {
		u.changed()
	}
}

// inUse leaves out, of the endpoints that pass their checks, those that refused
// connections or are ejected; unless too few of all would be left.
func inUse(list []candidate, all, panicPercent int) []candidate {
	listening := slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return c.refused })
	if len(listening) == 0 {
		return list // what refused a moment ago is better than nothing
	}
	good := slices.DeleteFunc(slices.Clone(listening), func(c candidate) bool { return c.ejected.out })
	if len(good) == 0 || len(good)*100 < panicPercent*all {
		return listening
	}
	return good
}
