package admission

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionreview "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// annotations returns the audit annotations of the last request.
func (b *bench) annotations() (all map[string]string) {
	b.set(func() { all = b.audited.GetEventAnnotations() })
	return all
}

// Annotations of webhooks and policies are added to the audit event, also of a rejected write.
// Warnings of webhooks are passed to Warn.
func TestAnnotationsAndWarnings(t *testing.T) {
	b := newBench(t)
	marked := newHookServer(t, func(*admissionreview.AdmissionRequest) *admissionreview.AdmissionResponse {
		return &admissionreview.AdmissionResponse{Allowed: true, AuditAnnotations: map[string]string{"seen": "yes"}, Warnings: []string{"mind the gap"},
			Patch: []byte(`[{"op":"add","path":"/data/b","value":"2"}]`), PatchType: new(admissionreview.PatchTypeJSONPatch)}
	})
	gone := newHookServer(t, allow)
	gone.Close()
	b.configure(mutatingHooks("m", mutatingHook("m.example.com", marked)))
	b.configure(validatingHooks("v", validatingHook("v.example.com", gone, func(h *admissionv1.ValidatingWebhook) { h.FailurePolicy = new(admissionv1.Ignore) })))
	b.configure(validatingPolicy("p", func(s *admissionv1.ValidatingAdmissionPolicySpec) {
		s.Validations = []admissionv1.Validation{{Expression: "object.data.a != '1'", Message: "one"}}
		s.AuditAnnotations = []admissionv1.AuditAnnotation{{Key: "a", ValueExpression: "'it is ' + object.data.a"}}
	}), validatingBinding("b", "p", func(s *admissionv1.ValidatingAdmissionPolicyBindingSpec) {
		s.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
	}))
	b.must(http.MethodPost, configMapsPath, configMap("x"))
	if got := b.warned(); !slices.Equal(got, []string{"mind the gap"}) {
		t.Errorf("warned %q", got)
	}
	got := b.annotations()
	want := []string{
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_0", "m.example.com/seen", "mutation.webhook.admission.k8s.io/round_0_index_0",
		"p/a", "patch.webhook.admission.k8s.io/round_0_index_0", "validation.policy.admission.k8s.io/validation_failure",
	}
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) {
		t.Errorf("got %q", keys)
	}
	if got["m.example.com/seen"] != "yes" || got["p/a"] != "it is 1" || !strings.Contains(got[want[2]], `"mutated":true`) || !strings.Contains(got[want[5]], `"message":"one"`) {
		t.Errorf("got %q", got)
	}
	b.configure(validatingHooks("v", validatingHook("v.example.com", newHookServer(t, deny("no")))))
	b.refused(http.MethodPost, configMapsPath, configMap("z"), 400, `admission webhook "v.example.com" denied the request: no`)
	if got := b.annotations()["m.example.com/seen"]; got != "yes" {
		t.Errorf("of a rejected write: %q", got)
	}
}
