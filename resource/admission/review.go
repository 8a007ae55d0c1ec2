package admission

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico/resource"
	"portico/resource/rest"
)

// Mutate evaluates mutating policies, calls mutating webhooks, and repeats those with
// reinvocation if the object changed after them.
func (e *Engine) Mutate(ctx context.Context, a *rest.Attributes) error {
	if e == nil {
		return nil
	}
	r := &review{engine: e, write: a}
	err := r.mutate(ctx)
	if err != nil || r.attrs == nil || !r.attrs.GetReinvocationContext().ShouldReinvoke() {
		return err
	}
	r.attrs.GetReinvocationContext().SetIsReinvoke()
	return r.mutate(ctx)
}

// Validate evaluates validating policies and calls validating webhooks.
func (e *Engine) Validate(ctx context.Context, a *rest.Attributes) error {
	if e == nil {
		return nil
	}
	r := &review{engine: e, write: a}
	return r.run(ctx, e.validatingPolicies.synced, e.validatingPolicies.call, e.validatingWebhooks)
}

// review is the admission of one write by an Engine, with both rounds of mutation. It is
// used by one goroutine at a time.
type review struct {
	engine *Engine
	write  *rest.Attributes

	// attrs and objects describe the write to upstream's engines; nil until needed.
	attrs   admission.Attributes
	objects *objects
}

// attributes returns the write in upstream's form.
func (r *review) attributes() admission.Attributes {
	if r.attrs == nil {
		r.attrs, r.objects = newAttributes(r.write), newObjects(r.write)
	}
	return r.attrs
}

// mutate runs the mutating policies and webhooks once.
func (r *review) mutate(ctx context.Context) error {
	e := r.engine
	return r.run(ctx, e.mutatingPolicies.synced, e.mutatingPolicies.call, e.mutatingWebhooks)
}

// run waits until policies and webhooks are known, and calls both.
func (r *review) run(ctx context.Context, policiesKnown *gate, policies func(context.Context, *review) error, webhooks *webhooks) error {
	e := r.engine
	if r.write.Kind.Review != nil {
		return nil
	}
	if !waitAll(ctx, e.cfg.FirstRead, policiesKnown, webhooks.informer.synced) {
		return errUnknown()
	}
	ctx = e.withWarnings(ctx)
	defer r.annotate(ctx)
	if !r.exemptFromPolicies() {
		if err := policies(ctx, r); err != nil {
			return asStatus(err)
		}
	}
	return asStatus(webhooks.call(ctx, r))
}

// annotate adds the annotations of webhooks and policies to the audit event.
func (r *review) annotate(ctx context.Context) {
	if r.attrs != nil {
		// The error is that of the plugin, which has none.
		_ = admission.WithAudit(noPlugin{}).(admission.ValidationInterface).Validate(ctx, r.attrs, r.objects)
	}
}

// noPlugin is a plugin without effect. Upstream adds annotations to audit events after
// calling a plugin.
type noPlugin struct{}

// Handles implements admission.Interface.
func (noPlugin) Handles(admission.Operation) bool { return true }

// Validate implements admission.ValidationInterface.
func (noPlugin) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}

// exemptFromPolicies reports whether policies do not apply to the write. The webhook engines
// have their own exemptions.
func (r *review) exemptFromPolicies() bool {
	k := r.write.Kind
	if k.Group != configurationGroup {
		return false
	}
	switch k.Resource {
	case "validatingadmissionpolicies", "validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings":
		return true
	}
	return false
}

// newAttributes returns a write in upstream's form.
func newAttributes(a *rest.Attributes) admission.Attributes {
	version, subresource := a.Kind.Versions[0], ""
	if a.Action != nil {
		version, subresource = a.Action.Version, a.Action.Subresource
	}
	return admission.NewAttributesRecord(a.Object, a.Old, bodyKind(a.Kind, version, subresource), namespaceOf(a), a.Key.Name,
		a.Kind.GVR(version), subresource, admission.Operation(a.Operation), a.Options, a.DryRun, userOf(a.Action))
}

// bodyKind returns the kind of the bodies of a resource or subresource.
func bodyKind(k *rest.Kind, version, subresource string) schema.GroupVersionKind {
	for i := range k.Subresources {
		if sub := &k.Subresources[i]; sub.Name == subresource && !sub.GVK.Empty() {
			return sub.GVK
		}
	}
	return k.GVK(version)
}

// namespaceOf returns the namespace of the request. A Namespace is in itself (docs/wire.md
// 10.2, selectors of namespaces).
func namespaceOf(a *rest.Attributes) string {
	if a.Kind.Group == "" && a.Kind.Resource == "namespaces" {
		return a.Key.Name
	}
	return a.Key.Namespace
}

func userOf(action *resource.Action) user.Info {
	if action == nil || action.User == nil {
		return &user.DefaultInfo{}
	}
	u := action.User
	return &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}
