package controllers

import (
	"strings"
	"testing"

	"portico/internal/testing/await"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Each generation of a policy is type-checked once against the published schemas of the kinds that its rules name; kinds
// that are not served are left out.
func TestValidatingAdmissionPolicyStatus(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	policies := s.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy := func(name, group, resource, expression string) *admissionv1.ValidatingAdmissionPolicy {
		rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}
		return &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}},
			Validations:      []admissionv1.Validation{{Expression: expression, MessageExpression: "string(object.none)"}},
		}}
	}
	for name, p := range map[string]*admissionv1.ValidatingAdmissionPolicy{
		"good": policy("good", "apps", "deployments", "object.spec.replicas < 5"),
		"bad":  policy("bad", "apps", "deployments", "object.spec.replicas == 'five'"),
		"away": policy("away", "example.com", "widgets", "object.spec.none == 5"),
	} {
		if name == "good" {
			p.Spec.Validations[0].MessageExpression = ""
		}
		must[*admissionv1.ValidatingAdmissionPolicy](t)(policies.Create(t.Context(), p, metav1.CreateOptions{}))
	}
	s.run("validatingadmissionpolicy-status-controller", Options{}, nil)
	checked := func(name string, generation int64) (warnings []admissionv1.ExpressionWarning) {
		t.Helper()
		await.Until(t, name+" is checked", func() bool {
			p := must[*admissionv1.ValidatingAdmissionPolicy](t)(policies.Get(t.Context(), name, metav1.GetOptions{}))
			if warnings = nil; p.Status.TypeChecking != nil {
				warnings = p.Status.TypeChecking.ExpressionWarnings
			}
			return p.Status.ObservedGeneration == generation
		})
		return warnings
	}
	for _, name := range []string{"good", "away"} {
		if warnings := checked(name, 1); len(warnings) > 0 {
			t.Errorf("%s: %v", name, warnings)
		}
	}
	warnings := checked("bad", 1)
	if len(warnings) != 2 || warnings[0].FieldRef != "spec.validations[0].expression" || warnings[1].FieldRef != "spec.validations[0].messageExpression" ||
		!strings.Contains(warnings[0].Warning, "found no matching overload for '_==_'") || !strings.Contains(warnings[1].Warning, "undefined field 'none'") {
		t.Errorf("bad: %v", warnings)
	}
	fix := []byte(`{"spec":{"validations":[{"expression":"object.spec.replicas == 5"}]}}`)
	must[*admissionv1.ValidatingAdmissionPolicy](t)(policies.Patch(t.Context(), "bad", "application/merge-patch+json", fix, metav1.PatchOptions{}))
	if warnings := checked("bad", 2); len(warnings) > 0 {
		t.Errorf("after the change: %v", warnings)
	}
}
