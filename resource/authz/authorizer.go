package authz

import (
	"context"
	"errors"
	"slices"

	"portico/resource"
)

// Decision is the result of an authorizer.
type Decision int

const (
	// NoOpinion leaves the decision to the next authorizer. It is the zero Decision, and
	// a refusal if no authorizer has an opinion.
	NoOpinion Decision = iota
	// Allow permits the action; no further authorizer is called.
	Allow
	// Deny refuses the action; no further authorizer is called.
	Deny
)

// String returns the decision's name for audit and logs.
func (d Decision) String() string {
	switch d {
	case Allow:
		return "Allow"
	case Deny:
		return "Deny"
	}
	return "NoOpinion"
}

// Authorizer decides whether a.User may do a. Implementations are safe for concurrent
// use and do not change a.
type Authorizer interface {
	// Authorize returns the decision and its reason for users (may be ""). With an error the
	// decision may be incomplete: Allow applies, and any other decision is the error.
	Authorize(ctx context.Context, a *resource.Action) (decision Decision, reason string, err error)
}

// Func makes an Authorizer of a function.
type Func func(ctx context.Context, a *resource.Action) (Decision, string, error)

// Authorize calls f.
func (f Func) Authorize(ctx context.Context, a *resource.Action) (Decision, string, error) {
	return f(ctx, a)
}

// Union calls the authorizers in order; the first that allows or denies decides. If
// none does, the reasons are joined by ", " and the errors by errors.Join.
func Union(authorizers ...Authorizer) Authorizer { return union(authorizers) }

type union []Authorizer

func (u union) Authorize(ctx context.Context, a *resource.Action) (Decision, string, error) {
	var reasons string
	var errs []error
	for _, one := range u {
		decision, reason, err := one.Authorize(ctx, a)
		if decision != NoOpinion {
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		switch {
		case reasons == "":
			reasons = reason
		case reason != "":
			reasons += ", " + reason
		}
	}
	return NoOpinion, reasons, errors.Join(errs...)
}

// Masters allows everything to the group system:masters, and has no opinion on other
// users.
func Masters() Authorizer { return Func(masters) }

func masters(_ context.Context, a *resource.Action) (Decision, string, error) {
	if a.User != nil && slices.Contains(a.User.Groups, resource.GroupMasters) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}
