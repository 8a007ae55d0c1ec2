package admission

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"portico/resource/serve/metrics"
)

// shown returns the metrics of gatherers as text.
func shown(all ...prometheus.Gatherer) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(prometheus.Gatherers(all), promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// Phases, plugins, webhooks and policies have upstream's metrics, and Waited gets the time that a
// write waited for webhooks.
func TestMetrics(t *testing.T) {
	var waited atomic.Int64
	b := newBench(t, func(c *EngineConfig) {
		c.Waited = func(_ context.Context, part string, d time.Duration) {
			if part == PartMutatingWebhooks || part == PartValidatingWebhooks {
				waited.Add(int64(d))
			}
		}
	})
	b.must(http.MethodPost, configMapsPath, configMap("unasked"))
	if waited.Load() != 0 {
		t.Error("waited for no webhook")
	}
	refusing, gone := newHookServer(t, deny("no")), newHookServer(t, allow)
	gone.Close()
	policy := validatingPolicy("metrics-policy", demand(admissionv1.Validation{Expression: "object.data.b == '1'"}))
	b.configure(mutatingHooks("hooks", mutatingHook("mutates.metrics", newHookServer(t, allow))),
		validatingHooks("hooks", validatingHook("refuses.metrics", refusing), validatingHook("gone.metrics", gone, func(h *admissionv1.ValidatingWebhook) {
			h.FailurePolicy = new(admissionv1.Ignore)
		})),
		policy, validatingBinding("metrics-binding", "metrics-policy", nil))
	b.do(http.MethodPost, configMapsPath, configMap("x"))
	b.do(http.MethodPost, configMapsPath, `{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {b: "1"}}`)
	if waited.Load() == 0 {
		t.Error("Waited was not called")
	}
	text := shown(metrics.Shared(EngineMetrics()...))
	for _, want := range []string{
		`apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="false",type="admit"} `,
		`apiserver_admission_step_admission_duration_seconds_count{operation="CREATE",rejected="true",type="validate"} `,
		`apiserver_admission_controller_admission_duration_seconds_count{name="MutatingAdmissionWebhook",operation="CREATE",rejected="false",type="admit"} `,
		`apiserver_admission_controller_admission_duration_seconds_count{name="ValidatingAdmissionPolicy",operation="CREATE",rejected="true",type="validate"} `,
		`apiserver_admission_controller_admission_duration_seconds_count{name="ValidatingAdmissionWebhook",operation="CREATE",rejected="true",type="validate"} `,
		`apiserver_admission_webhook_admission_duration_seconds_count{name="mutates.metrics",operation="CREATE",rejected="false",type="admit"} 2`,
		`apiserver_admission_webhook_rejection_count{error_type="no_error",name="refuses.metrics",operation="CREATE",rejection_code="400",type="validating"} 1`,
		`apiserver_admission_webhook_request_total{code="400",name="refuses.metrics",operation="CREATE",rejected="true",type="validating"} 1`,
		`apiserver_admission_webhook_fail_open_count{name="gone.metrics",type="validating"} 1`,
		`apiserver_validating_admission_policy_check_total{enforcement_action="deny",error_type="invalid_error",policy="metrics-policy",policy_binding="metrics-binding"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("missing %s", want)
		}
	}
	for _, other := range []string{"go_goroutines", "process_cpu_seconds_total", "apiserver_audit", "registered_metrics"} {
		if strings.Contains(text, other) {
			t.Errorf("%s is not a metric of the engines", other)
		}
	}
}
