package admission

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/authentication/user"

	"portico/resource"
	"portico/resource/rest"
	"portico/resource/rest/informer"
)

// Mutate evaluates mutating policies, calls mutating webhooks, and repeats those with
// reinvocation if the object changed after them.
func (e *Engine) Mutate(ctx context.Context, a *rest.Attributes) error {
	return (&part{engine: e}).Mutate(ctx, a)
}

// Validate evaluates validating policies and calls validating webhooks.
func (e *Engine) Validate(ctx context.Context, a *rest.Attributes) error {
	return (&part{engine: e}).Validate(ctx, a)
}

// Only returns the plugins of the engine that names has. Before the second round of mutation,
// again is called, for the plugins in front of the engine; nil: there are none.
func (e *Engine) Only(names []string, again func(context.Context, *rest.Attributes) error) rest.Admission {
	return &part{engine: e, names: names, again: again}
}

// part is some of the plugins of an Engine, see Only; names nil: all.
type part struct {
	engine *Engine
	names  []string
	again  func(context.Context, *rest.Attributes) error
}

// Mutate implements rest.Admission.
func (p *part) Mutate(ctx context.Context, a *rest.Attributes) error {
	if p.engine == nil {
		return nil
	}
	r := &review{engine: p.engine, names: p.names, write: a}
	err := r.mutate(ctx)
	if err != nil || r.attrs == nil || !r.attrs.GetReinvocationContext().ShouldReinvoke() {
		return err
	}
	if p.again != nil {
		if err := p.again(ctx, a); err != nil {
			return err
		}
	}
	r.attrs.GetReinvocationContext().SetIsReinvoke()
	return r.mutate(ctx)
}

// Validate implements rest.Admission.
func (p *part) Validate(ctx context.Context, a *rest.Attributes) error {
	if p.engine == nil {
		return nil
	}
	r := &review{engine: p.engine, names: p.names, write: a}
	return r.run(ctx, phaseOf(p.engine.validatingPolicies), p.engine.validatingWebhooks)
}

// review is the admission of one write by an Engine, with both rounds of mutation. It is
// used by one goroutine at a time.
type review struct {
	engine *Engine
	names  []string // of the plugins to call; nil: all
	write  *rest.Attributes

	// attrs and objects describe the write to upstream's engines; nil until needed.
	attrs   admission.Attributes
	objects *objects
}

// attributes returns the write in upstream's form.
func (r *review) attributes() admission.Attributes {
	if r.attrs == nil {
		r.attrs, r.objects = NewAttributes(r.write), newObjects(r.write)
	}
	return r.attrs
}

// mutate runs the mutating policies and webhooks once.
func (r *review) mutate(ctx context.Context) error {
	return r.run(ctx, phaseOf(r.engine.mutatingPolicies), r.engine.mutatingWebhooks)
}

// policyPhase is the policies of one phase.
type policyPhase struct {
	name   string
	synced *informer.Gate
	call   func(context.Context, *review) error
}

func phaseOf[H generic.Hook](p *policies[H]) policyPhase {
	return policyPhase{p.name, p.synced, p.call}
}

// run waits until policies and webhooks are known, and calls both.
func (r *review) run(ctx context.Context, policies policyPhase, webhooks *webhooks) error {
	e := r.engine
	if r.write.Kind.Review != nil {
		return nil
	}
	callsPolicies, callsWebhooks := r.calls(policies.name), r.calls(webhooks.name)
	if !waitAll(ctx, e.cfg.FirstRead, policies.synced, webhooks.informer.Synced()) {
		return errUnknown()
	}
	ctx = e.withWarnings(ctx)
	defer r.annotate(ctx)
	if callsPolicies {
		if err := policies.call(ctx, r); err != nil {
			return asStatus(err)
		}
	}
	if !callsWebhooks {
		return nil
	}
	return asStatus(webhooks.call(ctx, r))
}

// calls reports whether a plugin is one to call.
func (r *review) calls(name string) bool { return r.names == nil || slices.Contains(r.names, name) }

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

// exemptFromPolicies reports whether policies of the API do not apply to the write. The webhook engines
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

// NewAttributes returns a write in upstream's form. In a deletecollection the name is
// empty, as in kube-apiserver; the old object has it.
func NewAttributes(a *rest.Attributes) admission.Attributes {
	version, subresource, name := a.Kind.Versions[0], "", a.Key.Name
	if a.Action != nil {
		version, subresource = a.Action.Version, a.Action.Subresource
		if a.Action.Verb == "deletecollection" {
			name = ""
		}
	}
	return admission.NewAttributesRecord(a.Object, a.Old, bodyKind(a.Kind, a.Kind.GVK(version).GroupVersion(), subresource), namespaceOf(a), name,
		a.Kind.GVR(version), subresource, admission.Operation(a.Operation), a.Options, a.DryRun, userOf(a.Action))
}

// bodyKind returns the kind of the bodies of a resource or subresource.
func bodyKind(k *rest.Kind, gv schema.GroupVersion, subresource string) schema.GroupVersionKind {
	for i := range k.Subresources {
		if sub := &k.Subresources[i]; sub.Name == subresource && !sub.GVK.Empty() {
			return sub.GVK
		}
	}
	return gv.WithKind(k.Kind)
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
	return &userInfo{user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}, u.Constraint}
}

// userInfo is a user with its constraint, which the authorizer of expressions reads.
type userInfo struct {
	user.DefaultInfo
	constraint *resource.Constraint
}
