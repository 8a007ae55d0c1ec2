package clients

import (
	"encoding/hex"
	"fmt"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"portico/cmd/e2e"
	"portico/internal/testing/tracetest"
)

// tracedBelow checks that calls of etcd, in the gateway and in the servers behind it, and of
// webhooks have spans below that of their request, and that requests which the gateway serves
// itself have names.
func tracedBelow(t *testing.T, up *e2e.Installation, collected *tracetest.Collector) {
	t.Helper()
	e2e.CallWebhook(t, up, "traced", labelling(t), `[""]`, `["configmaps"]`, `{}`)
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
		// Repeated until every process knows the webhook.
		e2e.Eventually(t, tc.span+" has below it "+tc.below, func() error {
			up.Do(t, tc.method, tc.path, tc.body, "Traceparent: 00-"+trace+"-0123456789abcdef-01")
			return below(collected.Of(tc.service, trace), tc.span, tc.below)
		})
	}
}

// below returns an error unless a request's span has the name and a child span.
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
	return fmt.Errorf("the spans are %v", spans)
}
