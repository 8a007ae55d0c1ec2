package clients

import (
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"testing"

	"portico/cmd/e2e"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tracedBelow checks that what a request waits for is below its span: etcd, in
// the gateway as in the servers behind it, and webhooks; and that what the
// gateway answers by itself is named for what it is.
func tracedBelow(t *testing.T, up *e2e.Installation, collected *traces) {
	t.Helper()
	hook := labelling(t)
	none, fail, url := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, hook.URL
	if _, err := up.Client(t).AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "traced"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "traced.example.com", SideEffects: &none, FailurePolicy: &fail, AdmissionReviewVersions: []string{"v1"}, Rules: writesOf("traced.example.com"),
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, tc := range []struct{ service, method, path, body, span, below string }{
		{"portico-core", "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"generateName":"traced-"}}`,
			"POST /api/v1/namespaces/{:namespace}/configmaps", "create configmaps"},
		{"portico-core", "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"generateName":"traced-"}}`,
			"POST /api/v1/namespaces/{:namespace}/configmaps", "Call mutating webhook"},
		{"portico-gateway", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"generateName":"traced-"}}`,
			"POST /apis/rbac.authorization.k8s.io/v1/clusterroles", "create clusterroles.rbac.authorization.k8s.io"},
		{"portico-gateway", "GET", "/apis", "", "GET /apis", ""},
		{"portico-gateway", "GET", "/openapi/v3", "", "GET /openapi/v3", ""},
	} {
		trace := hex.EncodeToString([]byte(fmt.Sprintf("below %10d", i)))
		// Again and again: the webhook is not known everywhere at once.
		e2e.Eventually(t, tc.span+" has below it "+tc.below, func() error {
			up.Traced(t, tc.method, tc.path, tc.body, trace)
			return below(collected.of(tc.service, trace), tc.span, tc.below)
		})
	}
}

// below returns an error unless there is a request's span with the name, and
// another one right below it.
func below(spans []*otlp.Span, name, child string) error {
	for _, s := range spans {
		if s.GetName() != name || s.GetKind() != otlp.Span_SPAN_KIND_SERVER {
			continue
		}
		if child == "" {
			return nil
		}
		for _, c := range spans {
			if c.GetName() == child && string(c.GetParentSpanId()) == string(s.GetSpanId()) {
				return nil
			}
		}
	}
	return fmt.Errorf("there are %v", spans)
}
