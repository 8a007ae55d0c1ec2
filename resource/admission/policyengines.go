package admission

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"

	"portico/resource/rest"
)

// validatingPolicies evaluates ValidatingAdmissionPolicies.
type validatingPolicies struct {
	*policySet[*validating.Policy, *validating.PolicyBinding, validating.Validator]
	dispatcher generic.Dispatcher[validating.PolicyHook]
	timer      *timer
}

func newValidatingPolicies(e *Engine) *validatingPolicies {
	s := newPolicySet[*validating.Policy, *validating.PolicyBinding, validating.Validator](e,
		configurationInfo("validatingadmissionpolicies", "ValidatingAdmissionPolicy"),
		configurationInfo("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding"))
	s.accessP, s.accessB = validating.NewValidatingAdmissionPolicyAccessor, validating.NewValidatingAdmissionPolicyBindingAccessor
	s.compile = compileValidating
	return &validatingPolicies{s, validating.NewDispatcher(e.authorizer, generic.NewPolicyMatcher(e.matcher)), e.cfg.Metrics.controller(nameValidatingPolicies)}
}

// ask evaluates all policies that the write concerns.
func (v *validatingPolicies) ask(ctx context.Context, p *passage) error {
	hooks := v.current()
	if len(hooks) == 0 {
		return nil
	}
	begun := time.Now()
	err := v.dispatcher.Dispatch(ctx, p.attributes(), p.objects, hooks)
	v.timer.observe(begun, p.write.Operation, err)
	return err
}

// mutatingPolicies evaluates MutatingAdmissionPolicies.
type mutatingPolicies struct {
	*policySet[*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator]
	engine *Engine
	timer  *timer
}

func newMutatingPolicies(e *Engine) *mutatingPolicies {
	s := newPolicySet[*mutating.Policy, *mutating.PolicyBinding, mutating.PolicyEvaluator](e,
		configurationInfo("mutatingadmissionpolicies", "MutatingAdmissionPolicy"),
		configurationInfo("mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding"))
	s.accessP, s.accessB = mutating.NewMutatingAdmissionPolicyAccessor, mutating.NewMutatingAdmissionPolicyBindingAccessor
	s.compile = compileMutating
	return &mutatingPolicies{s, e, e.cfg.Metrics.controller(nameMutatingPolicies)}
}

// ask evaluates all policies that the write concerns. There is nothing to
// mutate in a deletion.
func (m *mutatingPolicies) ask(ctx context.Context, p *passage) error {
	hooks := m.current()
	if len(hooks) == 0 || p.write.Operation == rest.Delete {
		return nil
	}
	// The dispatcher keeps nothing but what it is given, so each write can have
	// its own, which knows the schema of that write's kind.
	dispatcher := mutating.NewDispatcher(m.engine.authorizer, m.engine.matcher, typeConverters{p.write.Kind})
	begun := time.Now()
	err := dispatcher.Dispatch(ctx, p.attributes(), p.objects, hooks)
	m.timer.observe(begun, p.write.Operation, err)
	return err
}

// typeConverters gives apply configurations the schema of one kind: that of its
// field ownership. Without one, structure is deduced from the objects: maps are
// merged and lists cannot be changed.
type typeConverters struct{ kind *rest.Kind }

// GetTypeConverter implements patch.TypeConverterManager.
func (t typeConverters) GetTypeConverter(schema.GroupVersionKind) managedfields.TypeConverter {
	if t.kind.Ownership == nil {
		return managedfields.NewDeducedTypeConverter()
	}
	converter, err := t.kind.Ownership()
	if err != nil {
		return nil
	}
	return converter
}

// Run implements patch.TypeConverterManager; there is nothing to follow.
func (typeConverters) Run(context.Context) {}
