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
	calls *[]string
	err   error
}

func (s step) Mutate(context.Context, *rest.Attributes) error {
	*s.calls = append(*s.calls, "mutate "+s.name)
	return s.err
}

func (s step) Validate(context.Context, *rest.Attributes) error {
	*s.calls = append(*s.calls, "validate "+s.name)
	return s.err
}

// The members of a chain are called in order, up to the first error.
func TestChainOrder(t *testing.T) {
	refusal := errors.New("no")
	for want, err := range map[string]error{
		"mutate a, mutate b, mutate c, validate a, validate b, validate c": nil, "mutate a, mutate b, validate a, validate b": refusal,
	} {
		var calls []string
		c := Chain(step{"a", &calls, nil}, (*Engine)(nil), Chain(step{"b", &calls, err}), step{"c", &calls, nil})
		if mutate, validate := c.Mutate(t.Context(), nil), c.Validate(t.Context(), nil); mutate != err || validate != err {
			t.Errorf("got errors %v and %v, want %v", mutate, validate, err)
		}
		if got := strings.Join(calls, ", "); got != want {
			t.Errorf("got calls %s, want %s", got, want)
		}
	}
}
