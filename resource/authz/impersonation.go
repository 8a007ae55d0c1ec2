package authz

import (
	"context"

	"portico/resource"
)

// ImpersonateOn returns the action that must be allowed beside a: for a user that is
// impersonated under a constraint, the same of the impersonator with the verb
// impersonate-on:MODE:VERB. It is nil for other users.
func ImpersonateOn(a *resource.Action) *resource.Action {
	if a.User == nil || a.User.Constraint == nil {
		return nil
	}
	on, c := *a, a.User.Constraint
	on.User, on.Verb, on.Impersonator = c.Impersonator, c.Verb(a.Verb), nil
	return &on
}

// Constrained decides about an action by decide, and about ImpersonateOn if there is one: both
// must be allowed. The gateway's authorizers decide through it; [Ask] and the authorizer of CEL
// expressions, which send access reviews, send one for ImpersonateOn too.
func Constrained(ctx context.Context, decide Func, a *resource.Action) (Decision, string, error) {
	decision, reason, err := decide(ctx, a)
	on := ImpersonateOn(a)
	if decision != Allow || on == nil {
		return decision, reason, err
	}
	decision, reason, err = decide(ctx, on)
	if decision != Allow && reason == "" {
		reason = escapeMarkup(refusal(on))
	}
	return decision, reason, err
}
