package clients

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"k8s.io/client-go/rest"

	"portico/apiservice/explain"
	"portico/cmd/e2e"
	"portico/internal/testing/tracetest"
)

// A request shows in the headers of its response, the audit log, the access log, the metrics, a
// trace through two processes, and in the explanation of its route.
func TestObservability(t *testing.T) {
	t.Parallel()
	collected, err := tracetest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(collected.Stop)
	dir := t.TempDir()
	tracing := filepath.Join(dir, "tracing.yaml")
	e2e.WriteFile(t, tracing, collected.Config)
	policy := filepath.Join(dir, "policy.yaml")
	e2e.WriteFile(t, policy, auditPolicy)
	log, auditLog := filepath.Join(dir, "access.log"), filepath.Join(dir, "audit", "audit.log")
	up := e2e.Install(t, filepath.Join(dir, "data"), "--access-log="+log, "--tracing-config-file="+tracing,
		"--audit-policy-file="+policy, "--audit-log-path="+auditLog, "--audit-log-mode=batch")
	sendAuditedRequests(t, up)
	admin := e2e.HTTPClient(t, up.Config(t))

	const path = "/api/v1/namespaces/default/configmaps"
	seen := map[string]string{"core": path, "crd": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"}
	for backend, path := range seen {
		trace := hex.EncodeToString([]byte(fmt.Sprintf("trace of %7s", backend)))
		got := asked(t, admin, up.Endpoint+path, "Traceparent: 00-"+trace+"-0123456789abcdef-01", "X-Portico-Debug: 1", "Audit-Id: audit-"+backend)
		if by := got.Get("X-Portico-Backend"); !strings.HasPrefix(by, backend+"; ") || !strings.Contains(by, backend+`.sock"; attempts=1`) {
			t.Errorf("X-Portico-Backend is %q", by)
		}
		if timing := got.Get("Server-Timing"); !strings.HasPrefix(timing, "gateway;dur=") {
			t.Errorf("Server-Timing is %q", timing)
		}
		e2e.Eventually(t, "a trace goes through gateway and "+backend, func() error { return whole(collected, "portico-"+backend, trace) })
		e2e.Eventually(t, "the access log has the request", func() error { return logged(log, "audit-"+backend, backend, trace) })
	}
	_, metrics := e2e.Get(t, admin, up.Endpoint+"/metrics", "")
	for _, want := range []string{
		`portico_upstream_requests_total{apiservice="v1.",backend="core",code="2xx",`, `portico_upstream_endpoint_state{backend="crd",`,
		`portico_upstream_checks_total{backend="core",`, `portico_access_log_lines_total{result="dropped"} 0`, `portico_trace_spans_total{result="sent"}`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
	explained(t, up, admin, path)
	tracedBelow(t, up, collected)
	if err := up.Stop(); err != nil {
		t.Fatal(err)
	}
	checkAuditLog(t, auditLog)
}

// explained checks that administrators, and no other users, get the explanation of a route.
func explained(t *testing.T, up *e2e.Installation, admin *http.Client, path string) {
	t.Helper()
	question := up.Endpoint + explain.Path + "?verb=create&path=" + path
	code, answer := e2e.Get(t, admin, question, "")
	var e explain.Explanation
	if err := json.Unmarshal([]byte(answer), &e); err != nil || code != http.StatusOK {
		t.Fatalf("%d %s: %v", code, answer, err)
	}
	if e.Answerer != explain.Server || e.Request.Verb != "create" || e.Backend.Name != "core" || !strings.HasSuffix(e.Backend.Pick, "core.sock") ||
		e.APIService.Name != "v1." || e.APIService.Freshness != "Current" || e.Backend.Endpoints[0].State != "Healthy" {
		t.Errorf("got %s", answer)
	}
	jane := up.Config(t)
	jane.Impersonate = rest.ImpersonationConfig{UserName: "jane", Groups: []string{"system:authenticated"}}
	client := e2e.HTTPClient(t, jane)
	if code, body := e2e.Get(t, client, question, ""); code != http.StatusForbidden {
		t.Errorf("jane gets an explanation: %d %s", code, body)
	}
	if got := asked(t, client, up.Endpoint+path, "X-Portico-Debug: 1"); got.Get("X-Portico-Backend") != "" || got.Get("Server-Timing") != "" {
		t.Errorf("jane gets debugging headers: %v", got)
	}
}

// asked sends a GET and returns the header of the response.
func asked(t *testing.T, client *http.Client, url string, header ...string) http.Header {
	t.Helper()
	res, _, err := e2e.Ask(t.Context(), client, http.MethodGet, url, "", header...)
	if err != nil {
		t.Fatal(err)
	}
	return res.Header
}

// whole returns an error unless the trace has the span of the gateway's request, that of the
// attempt below it, and that of the server's request below the attempt.
func whole(c *tracetest.Collector, service, trace string) error {
	var request, attempt *otlp.Span
	for _, span := range c.Of("portico-gateway", trace) {
		if span.GetKind() == otlp.Span_SPAN_KIND_SERVER {
			request = span
		} else if span.GetName() == http.MethodGet {
			attempt = span
		}
	}
	behind := c.Of(service, trace)
	behind = slices.DeleteFunc(behind, func(span *otlp.Span) bool { return span.GetKind() != otlp.Span_SPAN_KIND_SERVER })
	switch {
	case request == nil || attempt == nil || len(behind) == 0:
		return fmt.Errorf("request %v, attempt %v, server %v", request, attempt, behind)
	case string(attempt.GetParentSpanId()) != string(request.GetSpanId()) || string(behind[0].GetParentSpanId()) != string(attempt.GetSpanId()):
		return fmt.Errorf("wrong parents: %v, %v, %v", request, attempt, behind)
	}
	return nil
}

// logged returns an error unless the access log has the request.
func logged(file, auditID, backend, trace string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for text := range strings.Lines(string(data)) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			return err
		}
		if line["auditID"] != auditID {
			continue
		}
		if line["backend"] != backend || line["traceID"] != trace || line["code"] != 200.0 || line["user"] == nil {
			return fmt.Errorf("the line is %s", text)
		}
		return nil
	}
	return fmt.Errorf("no line has %s", auditID)
}
