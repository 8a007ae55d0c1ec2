package history

import (
	"context"
	"math/rand/v2"
	"time"

	"portico/resource"
)

// disturb compacts and restarts, evenly over the writes, or restarts in turn.
func (p *play) disturb(ctx context.Context, rnd *rand.Rand) {
	if p.cfg.InTurn {
		defer p.over.Store(true)
		for i, restart := range p.sys.Restarts {
			if p.hopeless() || ctx.Err() != nil {
				return
			}
			p.disturbance(ctx, i, restart)
		}
		return
	}
	var kinds []func(context.Context) error
	if p.sys.Compact != nil {
		kinds = append(kinds, func(ctx context.Context) error {
			rev := p.seen.Load() - rnd.Int64N(30)
			if rev <= 1 {
				return nil
			}
			raise(&p.compacted, rev)
			return p.sys.Compact(ctx, rev)
		})
	}
	kinds = append(kinds, p.sys.Restarts...)
	if len(kinds) == 0 {
		return
	}
	for i := range p.cfg.Disturbances {
		at := int64((i + 1) * p.cfg.Steps / (p.cfg.Disturbances + 1))
		for p.written.Load() < at && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		p.disturbance(ctx, i, kinds[rnd.IntN(len(kinds))])
	}
}

func (p *play) disturbance(ctx context.Context, i int, do func(context.Context) error) {
	p.beginDisturbance()
	if err := do(ctx); err != nil {
		p.fault(resource.Key{}, 0, "disturbance %d: %v", i, err)
	}
	p.endDisturbance(p.settled(ctx))
}

// settled waits until every door responds with the newest state of the storage, and returns
// its revision.
func (p *play) settled(ctx context.Context) (rev int64) {
	for i := range p.sys.Doors {
		d := &p.sys.Doors[i]
		deadline := time.Now().Add(p.cfg.Patience)
		for {
			call, cancel := context.WithTimeout(ctx, p.cfg.Patience)
			l, err := d.Store().List(call, resource.ListOptions{})
			cancel()
			if err == nil {
				rev = max(rev, l.Revision)
				break
			}
			if time.Now().After(deadline) || ctx.Err() != nil {
				p.fault(resource.Key{}, 0, "%s does not answer after a disturbance: %v", d.Name, err)
				return rev
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return rev
}
