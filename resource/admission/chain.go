package admission

import (
	"context"

	"portico/resource/rest"
)

// Chain calls the members in order, for mutation and for validation, until the first error.
// If a webhook or policy of an Engine changed the object, all members mutate it a second
// time; of an Engine only plugins with reinvocation. nil members are omitted. The result is
// safe for concurrent use if the members are.
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
	reviews := map[*Engine]*review{}
	if err := c.round(ctx, a, reviews); err != nil {
		return err
	}
	again := false
	for _, r := range reviews {
		again = again || r.needsReinvocation()
	}
	if !again {
		return nil
	}
	for _, r := range reviews {
		r.reinvoke()
	}
	return c.round(ctx, a, reviews)
}

func (c chain) round(ctx context.Context, a *rest.Attributes, reviews map[*Engine]*review) error {
	for _, member := range c {
		engine, ok := member.(*Engine)
		if !ok {
			if err := member.Mutate(ctx, a); err != nil {
				return err
			}
			continue
		}
		r := reviews[engine]
		if r == nil {
			r = engine.begin(a)
			reviews[engine] = r
		}
		if err := r.mutate(ctx); err != nil {
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
