package serve

import (
	"context"
	"sync"
	"time"
)

// parts are what handlers say of how long parts of a request took. It is made for
// those of which something is said. Safe for concurrent use; nil is nothing.
type parts struct {
	mu     sync.Mutex
	waited time.Duration // for others (Waited)
	took   []part
}

type part struct {
	name string
	took time.Duration
}

// Took leaves word, for the audit of a slow request, of how long a part of it took;
// what is said of one part is added up. There are few, with fixed names: upstream's
// ("mutating-webhook"), or one with a domain ("latency.portico.dev/upstream"), which
// is the annotation as it is. Safe for concurrent use.
func Took(ctx context.Context, name string, d time.Duration) {
	if x := exchangeFrom(ctx); x != nil && x.audited.Load() != nil {
		x.saidParts().add(name, d)
	}
}

// Waited leaves so much of the request's time out of what the server answers for
// (apiserver_request_sli_duration_seconds): it waited for others, whom somebody
// else has put in the way. Audit is told as by Took. Safe for concurrent use.
func Waited(ctx context.Context, name string, d time.Duration) {
	x := exchangeFrom(ctx)
	if x == nil {
		return
	}
	p := x.saidParts()
	p.add(name, d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waited += d
}

// saidParts returns what is said of the exchange's parts.
func (x *exchange) saidParts() *parts {
	if p := x.parts.Load(); p != nil {
		return p
	}
	x.parts.CompareAndSwap(nil, new(parts))
	return x.parts.Load()
}

func (p *parts) add(name string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.took {
		if p.took[i].name == name {
			p.took[i].took += d
			return
		}
	}
	p.took = append(p.took, part{name, d})
}

// waitedInAll is how long the request waited for others.
func (p *parts) waitedInAll() time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waited
}

// each calls f for every part of which something was said.
func (p *parts) each(f func(name string, took time.Duration)) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.took {
		f(one.name, one.took)
	}
}
