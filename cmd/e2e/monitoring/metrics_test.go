package monitoring

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
)

// series are the labels of each series, by the name of the metric.
type series map[string][]map[string]string

// rare are the metrics that appear only after faults that no test here makes.
var rare = series{
	"portico_gateway_openapi_broken":      {{"backend": "", "group_version": ""}},
	"apiserver_terminated_watchers_total": {{"group": "", "resource": ""}},
	"etcd_request_errors_total":           {{"operation": "", "group": "", "resource": ""}},
}

// ofPrometheus are metrics of Prometheus itself.
var ofPrometheus = []string{"up", "ALERTS"}

// parse adds the series of a text of metrics.
func (s series) parse(text string) {
	line := regexp.MustCompile(`(?m)^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? \S+$`)
	for _, m := range line.FindAllStringSubmatch(text, -1) {
		labels := map[string]string{}
		for _, label := range matcher.FindAllStringSubmatch(m[2], -1) {
			labels[label[1]] = label[3]
		}
		s[m[1]] = append(s[m[1]], labels)
	}
}

// find returns the series of a selector that have its labels and values; Prometheus adds job and
// instance. The code of an answer may be any.
func (s series) find(want selector) (found []map[string]string) {
	for _, labels := range append(s[want.metric], rare[want.metric]...) {
		fits := true
		for _, name := range want.labels {
			_, has := labels[name]
			fits = fits && (has || name == "job" || name == "instance")
		}
		for name, value := range want.equal {
			fits = fits && (labels[name] == value || name == "code")
		}
		if fits {
			found = append(found, labels)
		}
	}
	return found
}

// Rules and dashboards select metrics that processes of the job show, with labels and values that
// they have, and group by labels that these metrics have.
func TestMetricsOfRulesExist(t *testing.T) {
	t.Parallel()
	up := observed(t)
	fair := e2e.Install(t, t.TempDir(), "--enable-priority-and-fairness")
	jobs := map[string]series{}
	for job, text := range map[string]string{
		"portico-gateway": page(t, up, "/metrics") + page(t, fair, "/metrics"), "portico-core": up.Metrics(t, "core"), "portico-crd": up.Metrics(t, "crd"),
		"portico_slis": page(t, up, "/metrics/slis"),
	} {
		jobs[job] = series{}
		jobs[job].parse(text)
	}
	all, recorded := expressions(t)
	for where, expr := range all {
		selectors, grouped := selectors(t, where, expr)
		known := []string{"job", "instance"}
		for _, want := range selectors {
			if slices.Contains(ofPrometheus, want.metric) {
				known = append(known, "severity")
				continue
			}
			if slices.Contains(recorded, want.metric) {
				continue
			}
			var found []map[string]string
			inJob := regexp.MustCompile("^(" + strings.Replace(want.jobRegex, "$job", "portico-.+", 1) + ")$")
			for job, shown := range jobs {
				if inJob.MatchString(job) {
					found = append(found, shown.find(want)...)
				}
			}
			if len(found) == 0 {
				t.Errorf("%s selects %+v, which no process of the job shows", where, want)
			}
			for _, labels := range found {
				for name := range labels {
					known = append(known, name)
				}
			}
		}
		for _, name := range grouped {
			if len(known) > 2 && !slices.Contains(known, name) {
				t.Errorf("%s groups by %s, which its metrics do not have", where, name)
			}
		}
	}
}

func page(t *testing.T, up *e2e.Installation, path string) string {
	t.Helper()
	code, text := up.Do(t, http.MethodGet, path, "")
	if code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, code, text)
	}
	return text
}

// observed starts an installation with an access log, traces and an audit webhook that is away, and makes
// the metrics appear that only faults and requests make.
func observed(t *testing.T) *e2e.Installation {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	up := e2e.Install(t, filepath.Join(dir, "data"),
		"--access-log="+filepath.Join(dir, "access.log"),
		"--tracing-config-file="+file("tracing.yaml", `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"TracingConfiguration","endpoint":"127.0.0.1:1"}`),
		"--audit-policy-file="+file("policy.yaml", `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","rules":[{"level":"Metadata"}]}`),
		"--audit-webhook-mode=blocking", "--audit-webhook-initial-backoff=1ms",
		"--audit-webhook-config-file="+file("webhook.yaml", `{"apiVersion":"v1","kind":"Config","current-context":"a","users":[{"name":"a","user":{}}],
			"clusters":[{"name":"a","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}]}`))
	const lost = "v1.lost.example.com"
	up.Post(t, "/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"`+lost+`"},"spec":{"group":"lost.example.com","version":"v1",
		"groupPriorityMinimum":1000,"versionPriority":15,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"lost"}}}`)
	maps := up.Client(t).CoreV1().ConfigMaps("default")
	watch, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
	up.Post(t, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"seen"}}`)
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces/default/configmaps", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"} {
		if code, body := up.Do(t, http.MethodGet, path, ""); code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, code, body)
		}
	}
	e2e.Eventually(t, "faults are counted", func() error {
		up.Do(t, http.MethodGet, "/apis/lost.example.com/v1/things", "")
		text := page(t, up, "/metrics")
		for _, want := range []string{"apiserver_request_terminations_total{", "aggregator_unavailable_apiservice_total{", "apiserver_audit_error_total{", `result="failed"`} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("no %s", want)
			}
		}
		return context.Cause(t.Context())
	})
	return up
}
