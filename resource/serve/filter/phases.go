package filter

import (
	"context"
	"sync"
	"time"
)

// phases are named parts of a request's time. They are made for requests that have any.
// Safe for concurrent use; nil has none.
type phases struct {
	mu     sync.Mutex
	waited time.Duration // of AddWait
	all    []phase
}

type phase struct {
	name string
	time time.Duration
}

// AddPhase adds d to a named phase of the request; slow requests have their phases as audit
// annotations. Names are few and fixed: upstream's ("mutating-webhook"), or an annotation
// with a domain ("latency.portico.dev/upstream"). Safe for concurrent use.
func AddPhase(ctx context.Context, name string, d time.Duration) {
	if rs := stateOf(ctx); rs != nil && rs.audited.Load() != nil {
		rs.makePhases().add(name, d)
	}
}

// AddWait is AddPhase for the time that another program took on behalf of its own
// configuration, such as a webhook: it is not part of
// apiserver_request_sli_duration_seconds. Safe for concurrent use.
func AddWait(ctx context.Context, name string, d time.Duration) {
	rs := stateOf(ctx)
	if rs == nil {
		return
	}
	p := rs.makePhases()
	p.add(name, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waited += d
}

// makePhases returns the request's phases.
func (rs *requestState) makePhases() *phases {
	if p := rs.phases.Load(); p != nil {
		return p
	}
	rs.phases.CompareAndSwap(nil, new(phases))
	return rs.phases.Load()
}

func (p *phases) add(name string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.all {
		if p.all[i].name == name {
			p.all[i].time += d
			return
		}
	}
	p.all = append(p.all, phase{name, d})
}

// totalWait returns the sum of AddWait.
func (p *phases) totalWait() time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waited
}

// each calls f for every phase.
func (p *phases) each(f func(name string, d time.Duration)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.all {
		f(one.name, one.time)
	}
}
