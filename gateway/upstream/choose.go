package upstream

import (
	"fmt"
	"slices"
	"time"
)

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
			list = append(list, candidate{e, e.Weight, e.Weight})
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
	u.warmUp(list, policy, now)
	u.share(list, policy, now)
	p := newPicks(policy, list)
	p.follow(u.picks.Load())
	p.err = lastErr
	if len(u.endpoints) == 1 && u.endpoints[0].Weight > 0 {
		p.only = u.endpoints[0]
	}
	u.picks.Store(p)
	u.move(len(list) > 0)
	if changed {
		u.changed()
	}
}

// inUse leaves out, of the endpoints that pass their checks, those that refused
// connections or are ejected; unless too few of all would be left.
func inUse(list []candidate, all, panicPercent int) []candidate {
	listening := slices.DeleteFunc(slices.Clone(list), func(c candidate) bool { return c.refused != nil })
	if len(listening) == 0 {
		return list // what refused a moment ago is better than nothing
	}
	good := slices.DeleteFunc(slices.Clone(listening), func(c candidate) bool { return c.ejected.out != nil })
	if len(good) == 0 || len(good)*100 < panicPercent*all {
		return listening
	}
	return good
}
