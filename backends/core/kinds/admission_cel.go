package kinds

import (
	"fmt"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// celRules check the expressions of one object by compiling them.
type celRules struct {
	// params is set if the expressions may use the variable params.
	params bool
	// stored are the expressions of the stored object, which may use what older releases had.
	stored map[string]bool
	// variables has what the variables of a policy compile to; nil: there are none.
	variables *plugincel.CompositedCompiler
}

// celCompiler compiles expressions without variables of a policy. It is made with the first one.
var celCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

func newCELRules(params bool) *celRules { return &celRules{params: params, stored: map[string]bool{}} }

// keep adds expressions of the stored object.
func (c *celRules) keep(conditions []admissionregistrationv1.MatchCondition, variables []admissionregistrationv1.Variable) {
	for _, m := range conditions {
		c.stored[m.Expression] = true
	}
	for _, v := range variables {
		c.stored[v.Expression] = true
	}
}

func (c *celRules) environment(e plugincel.ExpressionAccessor) environment.Type {
	if c.stored[e.GetExpression()] {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

// check compiles an expression that may use the variables of the policy.
func (c *celRules) check(e plugincel.ExpressionAccessor, extra plugincel.OptionalVariableDeclarations, path *field.Path) field.ErrorList {
	var compiler plugincel.Compiler = c.variables
	if c.variables == nil {
		compiler = celCompiler()
	}
	return c.compile(compiler, e, extra, path)
}

func (c *celRules) compile(compiler plugincel.Compiler, e plugincel.ExpressionAccessor, extra plugincel.OptionalVariableDeclarations, path *field.Path) field.ErrorList {
	extra.HasParams = c.params
	return celErrors(compiler.CompileCELExpression(e, extra, c.environment(e)).Error, e, path)
}

func celErrors(err *apiservercel.Error, e plugincel.ExpressionAccessor, path *field.Path) field.ErrorList {
	switch {
	case err == nil:
		return nil
	case err.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	case err.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, e.GetExpression(), err.Detail)}
	}
	return field.ErrorList{field.InternalError(path, err)}
}

var authorized = plugincel.OptionalVariableDeclarations{HasAuthorizer: true}

// condition checks a match condition, which has no variables of a policy.
func (c *celRules) condition(expression string, path *field.Path) field.ErrorList {
	return c.compile(celCompiler(), &matchconditions.MatchCondition{Expression: strings.TrimSpace(expression)}, authorized, path)
}

func (c *celRules) validation(expression string, path *field.Path) field.ErrorList {
	return c.check(&validating.ValidationCondition{Expression: expression}, authorized, path)
}

func (c *celRules) message(expression string, path *field.Path) field.ErrorList {
	return c.check(&validating.MessageExpressionCondition{MessageExpression: expression}, plugincel.OptionalVariableDeclarations{}, path)
}

func (c *celRules) audit(expression string, path *field.Path) field.ErrorList {
	return c.check(&validating.AuditAnnotationCondition{ValueExpression: strings.TrimSpace(expression)}, authorized, path)
}

func (c *celRules) mutation(kind admissionregistrationv1.PatchType, expression string, path *field.Path) field.ErrorList {
	var e plugincel.ExpressionAccessor = &patch.JSONPatchCondition{Expression: strings.TrimSpace(expression)}
	if kind == admissionregistrationv1.PatchTypeApplyConfiguration {
		e = &patch.ApplyConfigurationCondition{Expression: strings.TrimSpace(expression)}
	}
	return c.check(e, plugincel.OptionalVariableDeclarations{HasAuthorizer: true, HasPatchTypes: true}, path)
}

// compose lets later expressions use variables of the policy.
func (c *celRules) compose() error {
	composited, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return fmt.Errorf("make CEL compiler: %w", err)
	}
	c.variables = composited
	return nil
}

// variable checks a variable of a policy, after compose. Later expressions may use it.
func (c *celRules) variable(v *admissionregistrationv1.Variable, path *field.Path) field.ErrorList {
	e := &validating.Variable{Name: v.Name, Expression: v.Expression}
	extra := plugincel.OptionalVariableDeclarations{HasParams: c.params, HasAuthorizer: true}
	return celErrors(c.variables.CompileAndStoreVariable(e, extra, c.environment(e)).Error, e, path)
}
