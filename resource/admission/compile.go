package admission

import (
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

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
