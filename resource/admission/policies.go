package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/client-go/informers"

	"portico/resource/rest"
	"portico/resource/rest/informer"
)

// policies is one of upstream's two policy engines with its policies and bindings. H is the
// hook of a policy: the policy, its bindings and what it compiles to.
type policies[H generic.Hook] struct {
	name, phase        string // in metrics
	policies, bindings *informer.Informer
	source             generic.Source[H]
	static             staticPolicies[H] // part of source; nil without static manifests
	synced             *informer.Gate    // open once the first state was compiled
	// dispatcher evaluates hooks for a write.
	dispatcher func(*review) generic.Dispatcher[H]
	skipDelete bool
}

func newValidatingPolicies(e *Engine, list, bindings *informer.Informer) *policies[validating.PolicyHook] {
	dispatcher := validating.NewDispatcher(e.authorizer, generic.NewPolicyMatcher(e.matcher))
	return &policies[validating.PolicyHook]{
		name: validating.PluginName, phase: PhaseValidate, policies: list, bindings: bindings, synced: informer.NewGate(),
		source: generic.NewPolicySource(list, bindings, validating.NewValidatingAdmissionPolicyAccessor, validating.NewValidatingAdmissionPolicyBindingAccessor,
			compileValidating, noInformers{}, e.parameters, e.mapper),
		dispatcher: func(*review) generic.Dispatcher[validating.PolicyHook] { return dispatcher },
	}
}

func newMutatingPolicies(e *Engine, list, bindings *informer.Informer) *policies[mutating.PolicyHook] {
	return &policies[mutating.PolicyHook]{
		name: mutating.PluginName, phase: PhaseAdmit, policies: list, bindings: bindings, synced: informer.NewGate(),
		source: generic.NewPolicySource(list, bindings, mutating.NewMutatingAdmissionPolicyAccessor, mutating.NewMutatingAdmissionPolicyBindingAccessor,
			compileMutating, noInformers{}, e.parameters, e.mapper),
		// A dispatcher has no state, so each write can have one with the schema of its kind.
		dispatcher: func(r *review) generic.Dispatcher[mutating.PolicyHook] {
			return mutating.NewDispatcher(e.authorizer, e.matcher, typeConverters{r.write.Kind})
		},
		skipDelete: true, // a deletion has no object to mutate
	}
}

// run follows the policies until ctx ends. Upstream compiles changes once a second.
func (p *policies[H]) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { p.policies.Follow(ctx) })
	wg.Go(func() { p.bindings.Follow(ctx) })
	for _, i := range []*informer.Informer{p.policies, p.bindings} {
		select {
		case <-i.Synced().Opened():
		case <-ctx.Done():
			return
		}
	}
	wg.Go(func() {
		if wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return p.source.HasSynced(), nil }) == nil {
			p.synced.Open()
		}
	})
	if p.static != nil {
		wg.Go(func() { p.static.RunReloadLoop(ctx) })
	}
	_ = p.source.Run(ctx) // the error of ctx
}

// call evaluates all policies that match the write, or of policies and bindings the static ones.
func (p *policies[H]) call(ctx context.Context, r *review) error {
	var hooks []H
	switch {
	case !r.exemptFromPolicies():
		hooks = p.source.Hooks()
	case p.static != nil:
		hooks = p.static.Hooks()
	}
	if len(hooks) == 0 || p.skipDelete && r.write.Operation == rest.Delete {
		return nil
	}
	begun := time.Now()
	err := p.dispatcher(r).Dispatch(ctx, r.attributes(), r.objects, hooks)
	Observe(ctx, begun, p.name, p.phase, r.write.Operation, err)
	return err
}

// noInformers is a factory without typed informers: parameters of all kinds are followed as
// unstructured objects.
type noInformers struct {
	informers.SharedInformerFactory
}

// ForResource implements informers.SharedInformerFactory.
func (noInformers) ForResource(schema.GroupVersionResource) (informers.GenericInformer, error) {
	return nil, errors.New("there are no typed informers")
}

// typeConverters gives apply configurations the schema of one kind: that of its field
// ownership. Without a schema, structure is deduced from the objects: maps are merged, and
// lists cannot be changed.
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

// Run implements patch.TypeConverterManager. It has nothing to do.
func (typeConverters) Run(context.Context) {}

// celCompiler compiles the expressions of one policy. The base environment is made with the
// first policy of the process and shared.
type celCompiler struct {
	*cel.CompositedCompiler
	declarations cel.OptionalVariableDeclarations
}

func newCELCompiler(params bool, variables []admissionv1.Variable) (*celCompiler, error) {
	composited, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, fmt.Errorf("make CEL compiler: %w", err)
	}
	c := &celCompiler{composited, cel.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}}
	for _, v := range variables {
		// Errors of a variable are those of the expressions that use it.
		c.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, c.declarations, environment.StoredExpressions)
	}
	return c, nil
}

// condition compiles expressions for one evaluator.
func (c *celCompiler) condition(expressions []cel.ExpressionAccessor) cel.ConditionEvaluator {
	return c.CompileCondition(expressions, c.declarations, environment.StoredExpressions)
}

// message is condition without the variable authorizer, which messages do not have.
func (c *celCompiler) message(expressions []cel.ExpressionAccessor) cel.ConditionEvaluator {
	declarations := c.declarations
	declarations.HasAuthorizer = false
	return c.CompileCondition(expressions, declarations, environment.StoredExpressions)
}

// mutation compiles an expression that returns a patch.
func (c *celCompiler) mutation(expression cel.ExpressionAccessor) cel.MutatingEvaluator {
	declarations := c.declarations
	declarations.HasPatchTypes = true
	return c.CompileMutatingEvaluator(expression, declarations, environment.StoredExpressions)
}

// matcher compiles match conditions; nil without conditions. operation is a label of
// metrics.
func (c *celCompiler) matcher(conditions []admissionv1.MatchCondition, fail *admissionv1.FailurePolicyType, operation, policy string) matchconditions.Matcher {
	if len(conditions) == 0 {
		return nil
	}
	expressions := make([]cel.ExpressionAccessor, len(conditions))
	for i := range conditions {
		expressions[i] = (*matchconditions.MatchCondition)(&conditions[i])
	}
	return matchconditions.NewMatcher(c.condition(expressions), fail, "policy", operation, policy)
}

// compileValidating compiles a policy. Invalid expressions fail when they are evaluated.
func compileValidating(p *validating.Policy) validating.Validator {
	spec := &p.Spec
	c, err := newCELCompiler(spec.ParamKind != nil, spec.Variables)
	if err != nil {
		return validating.NewValidator(nil, nil, nil, nil, spec.FailurePolicy, err)
	}
	// messages has an entry for every validation; nil for those without an expression.
	validations, messages := make([]cel.ExpressionAccessor, len(spec.Validations)), make([]cel.ExpressionAccessor, len(spec.Validations))
	for i, v := range spec.Validations {
		validations[i] = &validating.ValidationCondition{Expression: v.Expression, Message: v.Message, Reason: v.Reason}
		if v.MessageExpression != "" {
			messages[i] = &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression}
		}
	}
	annotations := make([]cel.ExpressionAccessor, len(spec.AuditAnnotations))
	for i, a := range spec.AuditAnnotations {
		annotations[i] = &validating.AuditAnnotationCondition{Key: a.Key, ValueExpression: a.ValueExpression}
	}
	return validating.NewValidator(c.condition(validations), c.matcher(spec.MatchConditions, spec.FailurePolicy, "validate", p.Name),
		c.condition(annotations), c.message(messages), spec.FailurePolicy, nil)
}

// compileMutating compiles a policy. Invalid expressions fail when they are evaluated.
func compileMutating(p *mutating.Policy) mutating.PolicyEvaluator {
	spec := &p.Spec
	c, err := newCELCompiler(spec.ParamKind != nil, spec.Variables)
	if err != nil {
		return mutating.PolicyEvaluator{Error: &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: err.Error()}}
	}
	evaluator := mutating.PolicyEvaluator{
		CompositedCompiler: c.CompositedCompiler,
		Matcher:            c.matcher(spec.MatchConditions, spec.FailurePolicy, "admit", p.Name),
	}
	for _, m := range spec.Mutations {
		switch {
		case m.PatchType == admissionv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			evaluator.Mutators = append(evaluator.Mutators, patch.NewJSONPatcher(c.mutation(&patch.JSONPatchCondition{Expression: m.JSONPatch.Expression})))
		case m.PatchType == admissionv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			evaluator.Mutators = append(evaluator.Mutators,
				patch.NewApplyConfigurationPatcher(c.mutation(&patch.ApplyConfigurationCondition{Expression: m.ApplyConfiguration.Expression})))
		}
	}
	return evaluator
}
