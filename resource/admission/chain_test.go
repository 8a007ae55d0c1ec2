package admission

import (
	"context"
	"errors"
	"strings"
	"testing"

	"portico/resource/rest"
)

// step notes that it was asked, and may refuse.
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

func TestChainOrder(t *testing.T) {
	var notes []string
	a, b := step{"a", &notes, nil}, step{"b", &notes, nil}
	c := Chain(nil, a, Chain(b), (*Engine)(nil))
	if err := errors.Join(c.Mutate(t.Context(), create(benchKind("configmaps"))), c.Validate(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(notes, ", "); got != "mutate a, mutate b, validate a, validate b" {
		t.Error(got)
	}
}

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

func TestEmptyChain(t *testing.T) {
	if err := errors.Join(Chain().Mutate(t.Context(), nil), Chain().Validate(t.Context(), nil)); err != nil {
		t.Error(err)
	}
}
