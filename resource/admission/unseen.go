package admission

import (
	"context"

	"portico/resource/rest"
)

var (
	_ rest.Unseeing = chain(nil)
	_ rest.Unseeing = (*Engine)(nil)
	_ rest.Unseeing = (*lifecycle)(nil)
)

// AdmitUnseen decides if every member can.
func (c chain) AdmitUnseen(ctx context.Context, a *rest.Attributes) (decided bool, err error) {
	for _, member := range c {
		m, ok := member.(rest.Unseeing)
		if !ok {
			return false, nil
		}
		if decided, err := m.AdmitUnseen(ctx, a); !decided || err != nil {
			return decided, err
		}
	}
	return true, nil
}

// AdmitUnseen decides where there are no policies and no webhooks. One that
// becomes known a moment later has come after the write.
func (e *Engine) AdmitUnseen(ctx context.Context, a *rest.Attributes) (decided bool, err error) {
	if a.Kind.Review != nil {
		return true, nil
	}
	if !waitAll(ctx, e.cfg.FirstRead, e.mutatingPolicies.known, e.mutatingWebhooks.known, e.validatingPolicies.known, e.validatingWebhooks.known) {
		return true, errUnknown()
	}
	some := e.mutatingPolicies.any() || e.mutatingWebhooks.any() || e.validatingPolicies.any() || e.validatingWebhooks.any()
	return !some, nil
}

// AdmitUnseen always decides: nothing but the key counts.
func (l *lifecycle) AdmitUnseen(ctx context.Context, a *rest.Attributes) (decided bool, err error) {
	return true, l.Mutate(ctx, a)
}
