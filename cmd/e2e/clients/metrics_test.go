package clients

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"portico/cmd/e2e"
)

// Metrics of docs/wire.md 1.6, and those that common dashboards use.
var (
	requestMetrics = []string{
		"apiserver_request_total", "apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds", "apiserver_response_sizes",
		"apiserver_request_filter_duration_seconds", "apiserver_current_inflight_requests", "apiserver_tls_handshake_errors_total",
		"apiserver_client_certificate_expiration_seconds", "authentication_attempts", "authentication_duration_seconds", "authenticated_user_requests",
		"kubernetes_build_info", "process_resident_memory_bytes", "process_cpu_seconds_total", "go_goroutines",
	}
	watchMetrics = []string{
		"apiserver_longrunning_requests", "apiserver_watch_events_total", "apiserver_watch_events_sizes",
	}
	storageMetrics = []string{
		"apiserver_resource_objects", "apiserver_storage_objects", "apiserver_resource_size_estimate_bytes", "apiserver_storage_size_bytes",
		"etcd_request_duration_seconds", "etcd_requests_total", "etcd_lease_object_counts", "etcd_bookmark_total",
		"apiserver_watch_cache_consistent_read_total", "apiserver_watch_cache_initializations_total", "apiserver_watch_cache_resource_version",
	}
	admissionMetrics = []string{
		"apiserver_admission_step_admission_duration_seconds", "apiserver_admission_controller_admission_duration_seconds",
		"apiserver_webhooks_x509_missing_san_total",
	}
	accessMetrics = []string{
		"authorization_attempts_total", "authorization_duration_seconds", "portico_inflight_requests_limit",
		"authentication_token_cache_request_total", "authentication_token_cache_fetch_total",
	}
	aggregationMetrics = []string{
		"aggregator_unavailable_apiservice", "aggregator_unavailable_apiservice_total", "apiserver_request_terminations_total",
		// Described in docs/operations.md.
		"portico_upstream_requests_total", "portico_gateway_request_overhead_seconds",
	}
)

// alerts are the series that the usual alerts of Kubernetes select, and the process that has
// them.
var alerts = []struct{ alert, server, series string }{
	{"KubeAPIErrorBudgetBurn, objects", "core", `apiserver_request_sli_duration_seconds_bucket{component="apiserver",group="",resource="configmaps",scope="resource",subresource="",verb="POST",version="v1",le="1"}`},
	{"KubeAPIErrorBudgetBurn, namespaces", "core", `apiserver_request_sli_duration_seconds_bucket{component="apiserver",group="",resource="configmaps",scope="namespace",subresource="",verb="LIST",version="v1",le="5"}`},
	{"KubeAPIErrorBudgetBurn, clusters", "core", `apiserver_request_sli_duration_seconds_bucket{component="apiserver",group="",resource="namespaces",scope="cluster",subresource="",verb="LIST",version="v1",le="30"}`},
	{"KubeAPIErrorBudgetBurn, total", "core", `apiserver_request_sli_duration_seconds_count{component="apiserver",group="",resource="namespaces",scope="cluster",subresource="",verb="LIST",version="v1"}`},
	{"KubeAPIErrorBudgetBurn, errors", "gateway", `apiserver_request_total{code="503",component="aggregator",dry_run="",group="lost.example.com",resource="",scope="cluster",subresource="",verb="LIST",version="v1"}`},
	{"KubeAPITerminatedRequests", "gateway", `apiserver_request_terminations_total{code="503",component="aggregator",group="lost.example.com",resource="",scope="cluster",subresource="",verb="LIST",version="v1"}`},
	{"KubeClientCertificateExpiration", "gateway", `apiserver_client_certificate_expiration_seconds_bucket{le="604800"}`},
	{"KubeAggregatedAPIDown", "gateway", `aggregator_unavailable_apiservice{name="v1.lost.example.com"}`},
	{"KubeAggregatedAPIErrors", "gateway", `aggregator_unavailable_apiservice_total{name="v1.lost.example.com",reason="ServiceNotFound"}`},
	{"KubeVersionMismatch", "gateway", `kubernetes_build_info{build_date=`},
}

// Each process has the metrics that dashboards and alerts select; storage metrics are in every
// process with a storage. Portico's own metrics follow the conventions of Prometheus. In the form
// OpenMetrics the names are the same.
func TestMetricsAreShown(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	beSeen(t, up)
	defer up.MustKubectl(t, "delete", "apiservice", lost)
	texts := map[string]string{"core": up.Metrics(t, "core"), "crd": up.Metrics(t, "crd")}
	_, texts["gateway"] = e2e.Get(t, e2e.HTTPClient(t, up.Config(t)), up.Endpoint+"/metrics", "")
	for server, names := range map[string][][]string{
		"core":    {requestMetrics, watchMetrics, storageMetrics, admissionMetrics},
		"crd":     {requestMetrics, storageMetrics, admissionMetrics},
		"gateway": {requestMetrics, storageMetrics, accessMetrics, aggregationMetrics},
	} {
		t.Run(server, func(t *testing.T) {
			for _, group := range names {
				for _, name := range group {
					if !regexp.MustCompile(`(?m)^` + name + `(_count)?(\{| )`).MatchString(texts[server]) {
						t.Errorf("%s does not show %s", server, name)
					}
				}
			}
			problems, err := promlint.New(strings.NewReader(texts[server])).Lint()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				if strings.HasPrefix(p.Metric, "portico_") {
					t.Errorf("%s: %s", p.Metric, p.Text)
				}
			}
		})
	}
	_, text := e2e.Get(t, e2e.HTTPClient(t, up.Config(t)), up.Endpoint+"/metrics", "application/openmetrics-text; version=1.0.0")
	for _, want := range []string{"\napiserver_request_total{", "\nauthentication_attempts{", "\n# EOF\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("OpenMetrics does not show %q", want)
		}
	}
	for _, a := range alerts {
		if !strings.Contains(texts[a.server], "\n"+a.series) {
			t.Errorf("%s: %s does not show %s", a.alert, a.server, a.series)
		}
	}
}

// lost is an APIService without a server.
const lost = "v1.lost.example.com"

// beSeen sends requests that the metrics count.
func beSeen(t *testing.T, up *e2e.Installation) {
	t.Helper()
	client := e2e.HTTPClient(t, up.Config(t))
	for _, path := range []string{
		"/api/v1/namespaces", "/api/v1/namespaces/default/configmaps",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices",
	} {
		if code, body := e2e.Get(t, client, up.Endpoint+path, ""); code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
	}
	definition, err := e2e.Widgets(t, "seen.example.com").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for path, body := range map[string]string{
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All": string(definition),
		"/api/v1/namespaces/default/configmaps":                              `{"metadata":{"generateName":"seen-"}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices": `{"metadata":{"name":"` + lost + `"},"spec":{"group":"lost.example.com","version":"v1",
			"groupPriorityMinimum":1000,"versionPriority":15,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"lost"}}}`,
	} {
		up.Post(t, path, body)
	}
	e2e.Eventually(t, lost+" is counted", func() error {
		if code, _ := e2e.Get(t, client, up.Endpoint+"/apis/lost.example.com/v1/things", ""); code != http.StatusServiceUnavailable {
			return errors.New("its APIService is not routed yet")
		}
		if _, text := e2e.Get(t, client, up.Endpoint+"/metrics", ""); !strings.Contains(text, `aggregator_unavailable_apiservice_total{name="`+lost+`"`) {
			return errors.New("no metric counts it")
		}
		return nil
	})
}
