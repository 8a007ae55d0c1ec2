package upstream

import (
	"math/rand/v2"
	"time"
)

const (
	// forgivenAfter is how long an endpoint must get requests without being
	// ejected, for one ejection less of it to count: Envoy's interval.
	forgivenAfter = 10 * time.Second
	// jitterShare: an ejection is made longer by up to this part of the base, so
	// that gateways which ejected an endpoint together do not bring it back
	// together.
	jitterShare = 10
)

// ejection is that an endpoint is out for how requests to it ended.
type ejection struct {
	out *spell // nil: it is not
	// local: for connections, and the first lately, which a passed check proves wrong.
	// If they break again after that, it proves nothing: checks are answered otherwise.
	local bool
	times int // lately
	ended time.Time
}

// end ends it, at its time or before.
func (x *ejection) end() {
	if x.out != nil {
		end(&x.out)
		x.ended = time.Now()
	}
}

// next counts one ejection more and returns how long it is: the base, times how
// often there was one. Each while without any takes one back, counted from when
// the last one was over, however that came.
func (x *ejection) next(base, most time.Duration) time.Duration {
	if !x.ended.IsZero() {
		x.times = max(0, x.times-int(time.Since(x.ended)/forgivenAfter))
	}
	if base*time.Duration(x.times) < most { // more would only take longer to be forgiven
		x.times++
	}
	return min(base*time.Duration(x.times), most) + rand.N(base/jitterShare+1)
}

// eject takes an endpoint out for a while, if enough others are left.
func (u *Upstream) eject(e *endpoint, local bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.ejected.out != nil || u.gone(e) || !u.mayEject(e) {
		return
	}
	p := u.policy.Load()
	x := &e.ejected
	e.lastErr = err.Error()
	e.badAnswers.Store(0)
	e.badConns.Store(0)
	e.ejections.Add(1)
	u.begin(&x.out, x.next(p.BaseEjection, p.MaxEjection), func() { x.ended = time.Now() })
	x.local = local && x.times <= 1
	u.rebuild()
}

// mayEject reports whether an endpoint more may be out; mu is held. One may
// always be, however small the share is that is allowed, but never the last.
func (u *Upstream) mayEject(e *endpoint) bool {
	percent := u.policy.Load().MaxEjectionPercent
	out, left := 0, 0
	for _, other := range u.endpoints {
		switch {
		case other.ejected.out != nil:
			out++
		case other != e && other.Weight > 0 && other.usable() && other.refused == nil:
			left++
		}
	}
	return percent > 0 && left > 0 && (out == 0 || (out+1)*100 <= percent*len(u.endpoints))
}

// spell is a time for which something holds of an endpoint. It may end before.
type spell struct{ timer *time.Timer }

// begin has a spell begin in the place of the one there may be. At its end, and
// not if it was ended before, ended is called. mu is held, then as now.
func (u *Upstream) begin(at **spell, length time.Duration, ended func()) {
	end(at)
	s := new(spell)
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

// end ends a spell before its time; mu is held.
func end(at **spell) {
	if *at != nil {
		(*at).timer.Stop()
		*at = nil
	}
}
