package admission

import (
	"context"

	"portico/resource/rest"
)

// Chain calls the members in order, for mutation and for validation; the first error
// ends it. If a webhook or policy of an Engine changed the object, all members mutate it
// once more, in the same order; of the Engine's only those with reinvocation. nil
// members are left out. The result is safe for concurrent use if the members are.
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

// Mutate runs one round, and a second one if an Engine changed the object.
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

// Validate calls the members in order.
func (c chain) Validate(ctx context.Context, a *rest.Attributes) error {
	for _, member := range c {
		if err := member.Validate(ctx, a); err != nil {
			return err
		}
	}
	return nil
}
