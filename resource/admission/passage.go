package admission

import (
	"context"

	"k8s.io/apiserver/pkg/admission"

	"portico/resource/rest"
)

// passage is one write on its way past an Engine, both rounds of mutation
// included. It is used by one goroutine at a time.
type passage struct {
	engine *Engine
	write  *rest.Attributes

	// attrs and objects are for the engines; made for the first one.
	attrs   admission.Attributes
	objects *objects
}

func (e *Engine) begin(a *rest.Attributes) *passage { return &passage{engine: e, write: a} }

// attributes returns what the engines see of the write.
func (p *passage) attributes() admission.Attributes {
	if p.attrs == nil {
		p.attrs, p.objects = newAttributes(p.write), newObjects(p.write)
	}
	return p.attrs
}

// mutate runs the mutating policies and webhooks.
func (p *passage) mutate(ctx context.Context) error {
	e := p.engine
	if p.write.Kind.Review != nil {
		return nil
	}
	if !waitAll(ctx, e.cfg.FirstRead, e.mutatingPolicies.known, e.mutatingWebhooks.known) {
		return errUnknown()
	}
	if !e.mutatingPolicies.any() && !e.mutatingWebhooks.any() {
		return nil
	}
	ctx = e.warned(ctx)
	defer p.note(ctx)
	if !p.policyExempt() {
		if err := e.mutatingPolicies.ask(ctx, p); err != nil {
			return asStatus(err)
		}
	}
	return asStatus(e.mutatingWebhooks.ask(ctx, p))
}

// validate runs the validating policies and webhooks.
func (p *passage) validate(ctx context.Context) error {
	e := p.engine
	if p.write.Kind.Review != nil {
		return nil
	}
	if !waitAll(ctx, e.cfg.FirstRead, e.validatingPolicies.known, e.validatingWebhooks.known) {
		return errUnknown()
	}
	if !e.validatingPolicies.any() && !e.validatingWebhooks.any() {
		return nil
	}
	ctx = e.warned(ctx)
	defer p.note(ctx)
	if !p.policyExempt() {
		if err := e.validatingPolicies.ask(ctx, p); err != nil {
			return asStatus(err)
		}
	}
	return asStatus(e.validatingWebhooks.ask(ctx, p))
}

// note passes the annotations of webhooks and policies to audit.
func (p *passage) note(ctx context.Context) {
	if p.attrs != nil {
		// It has no error but that of the plugin.
		_ = admission.WithAudit(asked{}).(admission.ValidationInterface).Validate(ctx, p.attrs, p.objects)
	}
}

// asked is a plugin that does nothing: the engine's way from attributes to audit
// leads through one.
type asked struct{}

// Handles implements admission.Interface.
func (asked) Handles(admission.Operation) bool { return true }

// Validate implements admission.ValidationInterface.
func (asked) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}

// policyExempt reports whether policies are not shown this object. What webhooks
// are not shown, their engine knows.
func (p *passage) policyExempt() bool {
	k := p.write.Kind
	if k.Group != configurationGroup {
		return false
	}
	switch k.Resource {
	case "validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
		return true
	}
	return false
}

// wantsRound reports whether the object was changed so that others must see it
// again.
func (p *passage) wantsRound() bool {
	return p.attrs != nil && p.attrs.GetReinvocationContext().ShouldReinvoke()
}

// beginSecondRound restricts mutate to plugins with reinvocation.
func (p *passage) beginSecondRound() { p.attributes().GetReinvocationContext().SetIsReinvoke() }
