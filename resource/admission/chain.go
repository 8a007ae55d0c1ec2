package admission

import (
	"context"

	"portico/resource/rest"
)

// Chain asks several in order, for mutation and for validation alike; the first
// error ends it. When a webhook or a policy of an Engine in the list has changed
// an object, everybody is asked to mutate it once more, in the same order: those
// of the Engine which want to be reinvoked, and all others. Members that are nil
// are left out. The result may be used concurrently if the members may.
func Chain(list ...rest.Admission) rest.Admission {
	var c chain
	for _, member := range list {
		switch m := member.(type) {
		case nil:
		case chain:
			c = append(c, m...)
		case *Engine:
			if m != nil {
				c = append(c, m)
			}
		default:
			c = append(c, m)
		}
	}
	return c
}

type chain []rest.Admission

// Mutate runs one round, and a second one if the first asks for it.
func (c chain) Mutate(ctx context.Context, a *rest.Attributes) error {
	passages := map[*Engine]*passage{}
	if err := c.round(ctx, a, passages); err != nil {
		return err
	}
	again := false
	for _, p := range passages {
		again = again || p.wantsRound()
	}
	if !again {
		return nil
	}
	for _, p := range passages {
		p.beginSecondRound()
	}
	return c.round(ctx, a, passages)
}

func (c chain) round(ctx context.Context, a *rest.Attributes, passages map[*Engine]*passage) error {
	for _, member := range c {
		engine, ok := member.(*Engine)
		if !ok {
			if err := member.Mutate(ctx, a); err != nil {
				return err
			}
			continue
		}
		p := passages[engine]
		if p == nil {
			p = engine.begin(a)
			passages[engine] = p
		}
		if err := p.mutate(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Validate asks the members in order.
func (c chain) Validate(ctx context.Context, a *rest.Attributes) error {
	for _, member := range c {
		if err := member.Validate(ctx, a); err != nil {
			return err
		}
	}
	return nil
}
