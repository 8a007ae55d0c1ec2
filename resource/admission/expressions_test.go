package admission

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// An expression of a policy or a webhook that would run for hours is ended by the budget of its call, and counts as its
// failure policy says.
func TestCostlyExpressionsAreEnded(t *testing.T) {
	t.Parallel()
	b, hook := newBench(t), newHookServer(t, allow)
	ten := "[1,2,3,4,5,6,7,8,9,10]"
	costly := "object.metadata.name != ''"
	for _, name := range strings.Split("abcdefghi", "") {
		costly = ten + ".all(" + name + ", " + costly + ")" // 10^9 comparisons
	}
	condition := []admissionv1.MatchCondition{{Name: "c", Expression: costly}}
	policy := func(change func(*admissionv1.ValidatingAdmissionPolicySpec)) *admissionv1.ValidatingAdmissionPolicy {
		return validatingPolicy("p", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
			demand(admissionv1.Validation{Expression: "true"})(s)
			change(s)
		})
	}
	refused := func(what string) {
		t.Helper()
		_, status := b.do(http.MethodPost, configMapsPath+"?dryRun=All", configMap("x"))
		if status == nil || !strings.Contains(status.Message, "cost") {
			t.Errorf("%s: %+v", what, status)
		}
	}
	b.configure(policy(func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.Validations[0].Expression = costly }), validatingBinding("b", "p", nil))
	refused("a validation")
	b.configure(policy(func(s *admissionv1.ValidatingAdmissionPolicySpec) { s.MatchConditions = condition }), validatingBinding("b", "p", nil))
	refused("a condition of a policy")
	b.configure(policy(func(s *admissionv1.ValidatingAdmissionPolicySpec) {
		s.Validations[0].Expression, s.FailurePolicy = costly, new(admissionv1.Ignore)
	}), validatingBinding("b", "p", nil))
	b.must(http.MethodPost, configMapsPath+"?dryRun=All", configMap("x"))
	b.unconfigure(policy(func(*admissionv1.ValidatingAdmissionPolicySpec) {}), validatingBinding("b", "p", nil))
	b.configure(validatingHooks("hooks", validatingHook("a.example.com", hook, func(h *admissionv1.ValidatingWebhook) { h.MatchConditions = condition })))
	refused("a condition of a webhook")
	if asked := hook.asked(); len(asked) > 0 {
		t.Errorf("the webhook was called %d times", len(asked))
	}
}
