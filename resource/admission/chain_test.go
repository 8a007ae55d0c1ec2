package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	"portico/resource/rest"
)

// step records its calls and returns err.
type step struct {
	name  string
	notes *[]string
	err   error
}

func (s step) Mutate(context.Context, *rest.Attributes) error {
	*s.notes = append(*s.notes, "mutate "+s.name)
	return s.err
}

func (s step) Validate(context.Context, *rest.Attributes) error {
	*s.notes = append(*s.notes, "validate "+s.name)
	return s.err
}

// Members are called in order; nil members are omitted.
func TestChainOrder(t *testing.T) {
	var notes []string
	a, b := step{"a", &notes, nil}, step{"b", &notes, nil}
	c := Chain(nil, a, Chain(b), Chain(), (*Engine)(nil))
	if err := errors.Join(c.Mutate(t.Context(), create(benchKind("configmaps"))), c.Validate(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(notes, ", "); got != "mutate a, mutate b, validate a, validate b" {
		t.Error(got)
	}
}

// The first error ends the chain.
func TestChainEndsWithFirstError(t *testing.T) {
	var notes []string
	refusal := errors.New("no")
	c := Chain(step{"a", &notes, refusal}, step{"b", &notes, nil})
	if err := c.Mutate(t.Context(), nil); err != refusal {
		t.Error(err)
	}
	if err := c.Validate(t.Context(), nil); err != refusal {
		t.Error(err)
	}
	if got := strings.Join(notes, ", "); got != "mutate a, validate a" {
		t.Error(got)
	}
}
