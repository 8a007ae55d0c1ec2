package admission

import (
	"net/http"
	"slices"
	"testing"

	"portico/internal/testing/await"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// constraints matches all writes of these tests, with all defaults.
func constraints() *admissionv1.MatchResources {
	named := []admissionv1.NamedRuleWithOperations{}
	for _, r := range everything() {
		r.Operations = []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
		named = append(named, admissionv1.NamedRuleWithOperations{RuleWithOperations: r})
	}
	return &admissionv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, MatchPolicy: new(admissionv1.Equivalent), ResourceRules: named,
	}
}

func validatingPolicy(name string, change func(*admissionv1.ValidatingAdmissionPolicySpec)) *admissionv1.ValidatingAdmissionPolicy {
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.FailurePolicy, p.Spec.MatchConstraints = new(admissionv1.Fail), constraints()
	change(&p.Spec)
	return p
}

func validatingBinding(name, policy string, change func(*admissionv1.ValidatingAdmissionPolicyBindingSpec)) *admissionv1.ValidatingAdmissionPolicyBinding {
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}
	if change != nil {
		change(&b.Spec)
	}
	return b
}

// demand is a policy of one validation.
func demand(v admissionv1.Validation) func(*admissionv1.ValidatingAdmissionPolicySpec) {
	return func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations = []admissionv1.Validation{v} }
}

// The status of a rejection has the message and the reason of the validation.
func TestPolicyDenies(t *testing.T) {
	b := newBench(t)
	for name, test := range map[string]struct {
		validation admissionv1.Validation
		code       int32
		reason     metav1.StatusReason
		text       string
	}{
		"default message":    {admissionv1.Validation{Expression: "false"}, 422, metav1.StatusReasonInvalid, "failed expression: false"},
		"message expression": {admissionv1.Validation{Expression: "false", MessageExpression: "'not ' + object.metadata.name"}, 422, metav1.StatusReasonInvalid, "not x"},
		"message with authorizer": {admissionv1.Validation{Expression: "false", MessageExpression: "authorizer.path('/healthz').check('get').allowed() ? 'a' : 'b'"},
			422, metav1.StatusReasonInvalid, "failed expression: false"},
		"forbidden": {admissionv1.Validation{Expression: "false", Message: "m", Reason: new(metav1.StatusReasonForbidden)}, 403, metav1.StatusReasonForbidden, "m"},
	} {
		b.configure(validatingPolicy("p", demand(test.validation)), validatingBinding("b", "p", nil))
		cause := "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: " + test.text
		for prefix, request := range map[string][2]string{"configmaps": {configMapsPath, configMap("x")}, "widgets." + widgetGroup: {widgetsPath, widget("x")}} {
			status := b.refused(http.MethodPost, request[0], request[1], test.code, prefix+` "x" is forbidden: `+cause)
			if status.Reason != test.reason || len(status.Details.Causes) != 1 || status.Details.Causes[0].Message != cause {
				t.Errorf("%s: %+v", name, status)
			}
		}
	}
}

// Expressions have all variables. An expression that fails to evaluate rejects the write.
func TestPolicyExpressions(t *testing.T) {
	b := newBench(t)
	b.set(func() { b.allowed = true })
	expressions := []string{
		"object.data.a == '1' && object.apiVersion == 'v1' && object.kind == 'ConfigMap'", "oldObject == null", "variables.both == 2",
		"request.userInfo.username == 'alice' && request.operation == 'CREATE' && request.kind.kind == 'ConfigMap' && request.name == 'x'",
		"namespaceObject.metadata.labels.team == 'red'", "authorizer.group('').resource('pods').namespace('default').check('create').allowed()",
	}
	policy := func(expressions ...string) *admissionv1.ValidatingAdmissionPolicy {
		return validatingPolicy("p", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.Variables = []admissionv1.Variable{{Name: "one", Expression: "int(object.data.a)"}, {Name: "both", Expression: "variables.one + 1"}}
			for _, e := range expressions {
				s.Validations = append(s.Validations, admissionv1.Validation{Expression: e, Message: "m"})
			}
		})
	}
	b.configure(policy(expressions...), validatingBinding("b", "p", nil))
	b.must(http.MethodPost, configMapsPath+"?dryRun=All", configMap("x"))
	b.configure(policy("!(" + expressions[2] + ")"))
	b.refused(http.MethodPost, configMapsPath, configMap("x"), 422, `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: m`)
}

// The actions Warn and Audit permit the write.
func TestPolicyActions(t *testing.T) {
	b := newBench(t)
	b.configure(validatingPolicy("p", demand(admissionv1.Validation{Expression: "object.data.a != '1'", Message: "m"})),
		validatingBinding("b", "p", func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
			s.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
		}))
	b.must(http.MethodPost, configMapsPath, configMap("x"))
	if got := b.warned(); !slices.Equal(got, []string{"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': m"}) {
		t.Errorf("warned %q", got)
	}
	b.unconfigure(validatingPolicy("p", func(*admissionv1.ValidatingAdmissionPolicySpec) {}), validatingBinding("b", "p", nil))
	b.must(http.MethodPost, configMapsPath, configMap("z"))
	if got := b.warned(); len(got) > 0 {
		t.Errorf("warned %q", got)
	}
}

// Match conditions, selectors and the failure policy decide whether a policy rejects a write.
func TestPolicyConditionsAndFailures(t *testing.T) {
	b := newBench(t)
	for name, test := range map[string]struct {
		change func(*admissionv1.ValidatingAdmissionPolicySpec)
		text   string // "": permitted
	}{
		"true condition": {func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConditions = []admissionv1.MatchCondition{{Name: "c", Expression: "object.metadata.name == 'x'"}}
		}, "failed expression: false"},
		"false condition": {func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.MatchConditions = []admissionv1.MatchCondition{{Name: "c", Expression: "object.metadata.name != 'x'"}}
		}, ""},
		"error": {func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.Validations[0].Expression = "object.data.b == '1'"
		},
			"expression 'object.data.b == '1'' resulted in error: no such key: b"},
		"ignored error": {func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			s.Validations[0].Expression, s.FailurePolicy = "object.data.b == '1'", new(admissionv1.Ignore)
		}, ""},
	} {
		b.configure(validatingPolicy("p", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			demand(admissionv1.Validation{Expression: "false"})(s)
			test.change(s)
		}), validatingBinding("b", "p", nil))
		_, status := b.do(http.MethodPost, configMapsPath+"?dryRun=All", configMap("x"))
		const prefix = `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: `
		if (status != nil) != (test.text != "") || status != nil && status.Message != prefix+test.text {
			t.Errorf("%s: got %+v", name, status)
		}
	}
}

// Parameters are objects of any kind, built-in or custom; their changes apply.
func TestPolicyParameters(t *testing.T) {
	for name, test := range map[string]struct {
		kind       admissionv1.ParamKind
		expression string
		path, body string
		changed    string
	}{
		"ConfigMap": {admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, "object.spec.size <= int(params.data.a) && params.kind == 'ConfigMap'",
			"/api/v1/namespaces/other/configmaps", `{apiVersion: v1, kind: ConfigMap, metadata: {name: limit}, data: {a: "3"}}`, `{data: {a: "9"}}`},
		"Widget": {admissionv1.ParamKind{APIVersion: "example.com/v1", Kind: "Widget"}, "object.spec.size <= params.spec.size",
			"/apis/example.com/v1/namespaces/other/widgets", `{apiVersion: example.com/v1, kind: Widget, metadata: {name: limit}, spec: {size: 3}}`, `{spec: {size: 9}}`},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			policy := validatingPolicy("p", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
				s.ParamKind, s.Validations = &test.kind, []admissionv1.Validation{{Expression: test.expression, Message: "too large"}}
				s.MatchConstraints.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
			})
			binding := validatingBinding("b", "p", func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
				s.ParamRef = &admissionv1.ParamRef{Name: "limit", Namespace: "other", ParameterNotFoundAction: new(admissionv1.DenyAction)}
			})
			b.configure(policy, binding)
			large := `{apiVersion: example.com/v1, kind: Widget, metadata: {name: x}, spec: {size: 5}}`
			const prefix = `widgets.example.com "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: `
			b.refused(http.MethodPost, widgetsPath, large, 422, prefix+"failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction")
			b.must(http.MethodPost, test.path, test.body)
			b.refused(http.MethodPost, widgetsPath, large, 422, prefix+"too large")
			b.must(http.MethodPatch, test.path+"/limit", test.changed)
			await.Until(b.t, "the parameter has changed", func() bool {
				_, status := b.do(http.MethodPost, widgetsPath, large)
				return status == nil
			})
		})
	}
}

// A policy with an unknown kind of parameters rejects writes.
func TestUnknownParameters(t *testing.T) {
	b := newBench(t)
	b.configure(validatingPolicy("p", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
		s.ParamKind, s.Validations = &admissionv1.ParamKind{APIVersion: "nowhere.example.com/v1", Kind: "Limit"}, []admissionv1.Validation{{Expression: "true"}}
	}), validatingBinding("b", "p", nil))
	b.refused(http.MethodPost, configMapsPath, configMap("x"), 422, `configmaps "x" is forbidden: ValidatingAdmissionPolicy 'p' denied request: `+
		"failed to configure policy: failed to find resource referenced by paramKind: 'nowhere.example.com/v1, Kind=Limit'")
	b.configure(validatingPolicy("p", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
		s.ParamKind, s.Validations = &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}, []admissionv1.Validation{{Expression: "params == null"}}
	}))
	b.must(http.MethodPost, configMapsPath, configMap("x"))
}

// Policies apply to webhook configurations, but not to policies and bindings.
func TestPoliciesAreExempt(t *testing.T) {
	b := newBench(t)
	b.configure(validatingPolicy("p", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
		demand(admissionv1.Validation{Expression: "false", Message: "m"})(s)
		s.MatchConstraints.ResourceRules[0].APIGroups, s.MatchConstraints.ResourceRules[0].Resources = []string{"*"}, []string{"*"}
	}), validatingBinding("b", "p", nil))
	const path = "/apis/admissionregistration.k8s.io/v1/"
	b.refused(http.MethodPost, path+"mutatingwebhookconfigurations", `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: x}}`, 422,
		`mutatingwebhookconfigurations.admissionregistration.k8s.io "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: m`)
	b.must(http.MethodPost, path+"validatingadmissionpolicybindings",
		`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: x}, spec: {policyName: other}}`)
	b.must(http.MethodDelete, path+"validatingadmissionpolicies/p", "")
	await.Until(b.t, "the policy is gone", func() bool { return len(b.engine.validatingPolicies.source.Hooks()) == 0 })
	b.must(http.MethodPost, configMapsPath, configMap("x"))
}
