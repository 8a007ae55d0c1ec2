package audit

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"portico/internal/testing/await"
	"portico/resource"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(quiet())
	m.Run()
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

// Open reports mistakes in the policy, by its file, and in the options, by their flags.
func TestOpenErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		policy string
		change func(*Options)
		want   []string
	}{
		"no file":          {"", func(o *Options) { o.PolicyFile = "/nowhere/policy.yaml" }, []string{"/nowhere/policy.yaml", "no such file"}},
		"no level":         {head + "rules: [{verbs: [get]}]\n", nil, []string{"policy.yaml", "rules[0].level: Required"}},
		"no YAML":          {"{", nil, []string{"policy.yaml"}},
		"no log folder":    {head + "rules: [{level: None}]\n", func(o *Options) { o.Log.Path = "/dev/null/x/audit.log" }, []string{"open audit log /dev/null/x/audit.log"}},
		"no webhook":       {head + "rules: [{level: None}]\n", func(o *Options) { o.Webhook.ConfigFile = "/nowhere/hook" }, []string{"load audit webhook /nowhere/hook"}},
		"format":           {"", func(o *Options) { o.Log.Format = "xml" }, []string{"--audit-log-format=xml: choose json or legacy"}},
		"mode":             {"", func(o *Options) { o.Log.Delivery.Mode = "later" }, []string{"--audit-log-mode=later: choose batch or blocking or blocking-strict"}},
		"negative":         {"", func(o *Options) { o.Log.MaxAge, o.Log.MaxBackups, o.Log.MaxSize = -1, -1, -1 }, []string{"maxage=-1", "maxbackup=-1", "maxsize=-1"}},
		"version":          {"", func(o *Options) { o.Log.Version = "v2" }, []string{"--audit-log-version=v2"}},
		"event too large":  {"", func(o *Options) { o.Log.Delivery.MaxEventBytes = 0 }, []string{"--audit-log-truncate-max-event-size=0"}},
		"batch too small":  {"", func(o *Options) { o.Log.Delivery.MaxBatchBytes = 1 }, []string{"--audit-log-truncate-max-batch-size=1"}},
		"no buffer":        {"", func(o *Options) { o.Webhook.ConfigFile = "x"; o.Webhook.Delivery.Batch.BufferSize = 0 }, []string{"--audit-webhook-batch-buffer-size=0"}},
		"no batch":         {"", func(o *Options) { o.Webhook.ConfigFile = "x"; o.Webhook.Delivery.Batch.MaxSize = 0 }, []string{"--audit-webhook-batch-max-size=0"}},
		"no rate":          {"", func(o *Options) { o.Webhook.ConfigFile = "x"; o.Webhook.Delivery.Batch.QPS = 0 }, []string{"--audit-webhook-batch-throttle-qps=0"}},
		"no burst":         {"", func(o *Options) { o.Webhook.ConfigFile = "x"; o.Webhook.Delivery.Batch.Burst = 0 }, []string{"--audit-webhook-batch-throttle-burst=0"}},
		"negative backoff": {"", func(o *Options) { o.Webhook.ConfigFile = "x"; o.Webhook.InitialBackoff = -1 }, []string{"--audit-webhook-initial-backoff=-1ns"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := DefaultOptions()
			o.Log.Path, o.PolicyFile = Standard, writeFile(t, "policy.yaml", tc.policy)
			if tc.change != nil {
				tc.change(&o)
			}
			a, err := Open(o, quiet())
			if a != nil || err == nil {
				t.Fatalf("got %v, %v", a, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

// Without a policy or a sink nothing is audited, and options that are not used are not
// checked.
func TestOpenNothing(t *testing.T) {
	policy := writeFile(t, "policy.yaml", head+"rules: [{level: Metadata}]\n")
	for name, o := range map[string]Options{"nothing": {}, "no policy": {Log: DefaultOptions().Log}, "nowhere": {PolicyFile: policy}} {
		if name == "no policy" {
			o.Log.Path = Standard
		}
		if a, err := Open(o, quiet()); a != nil || err != nil {
			t.Errorf("%s: got %v, %v", name, a, err)
		}
	}
}

// Each field of policy rules is evaluated.
func TestPolicy(t *testing.T) {
	a := auditor(t, `
rules:
- {level: None, users: [nobody]}
- {level: None, userGroups: [quiet]}
- {level: Request, verbs: [delete]}
- {level: Metadata, resources: [{group: "", resources: [pods/log]}]}
- {level: RequestResponse, resources: [{group: apps}], namespaces: [prod]}
- {level: Metadata, resources: [{group: "", resources: [configmaps], resourceNames: [one]}]}
- {level: Metadata, nonResourceURLs: ["/version"]}
`, func(o *Options) {})
	jane := &resource.User{Name: "jane", Groups: []string{"dev"}}
	for _, tc := range []struct {
		method, path string
		user         *resource.User
		want         auditapi.Level
	}{
		{"GET", "/version", jane, "Metadata"},
		{"GET", "/version", &resource.User{Name: "nobody"}, "None"},
		{"GET", "/version", &resource.User{Name: "x", Groups: []string{"a", "quiet"}}, "None"},
		{"GET", "/version", nil, "Metadata"},
		{"GET", "/metrics", jane, "None"},
		{"DELETE", "/api/v1/namespaces/a/secrets/x", jane, "Request"},
		{"GET", "/api/v1/namespaces/a/pods/x/log", jane, "Metadata"},
		{"GET", "/api/v1/namespaces/a/pods/x", jane, "None"},
		{"GET", "/apis/apps/v1/namespaces/prod/deployments/x", jane, "RequestResponse"},
		{"GET", "/apis/apps/v1/namespaces/test/deployments/x", jane, "None"},
		{"GET", "/api/v1/namespaces/a/configmaps/one", jane, "Metadata"},
		{"GET", "/api/v1/namespaces/a/configmaps/two", jane, "None"},
		{"GET", "/api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Done", jane, "Metadata"},
	} {
		action := resource.ParseAction(httptest.NewRequest(tc.method, tc.path, nil))
		action.User = tc.user
		if got := a.policy.EvaluatePolicyRule(attributesOf(action)); got.Level != tc.want {
			t.Errorf("%s %s: got %s, want %s", tc.method, tc.path, got.Level, tc.want)
		}
	}
}

// auditor returns an Auditor with a policy that logs to /dev/null, unless change sets
// another sink.
func auditor(t testing.TB, policy string, change func(*Options)) *Auditor {
	t.Helper()
	o := DefaultOptions()
	o.PolicyFile, o.Log.Path, o.Log.MaxSize = filepath.Join(t.TempDir(), "policy.yaml"), "/dev/null", 0
	if err := os.WriteFile(o.PolicyFile, []byte(head+policy), 0o600); err != nil {
		t.Fatal(err)
	}
	change(&o)
	a, err := Open(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// ask audits one request.
func ask(t testing.TB, a *Auditor) {
	t.Helper()
	r := httptest.NewRequest("GET", "/api/v1/namespaces/a/pods/x", nil)
	r.Header.Set("X-Forwarded-For", "10.0.0.1, 10.0.0.2")
	r.Header.Set("X-Real-Ip", "10.0.0.3")
	action := resource.ParseAction(r)
	action.User = &resource.User{Name: "jane", UID: "1", Groups: []string{"dev"}, Extra: map[string][]string{"k": {"v"}}}
	q, err := a.Begin(r, Arrival{Action: action, ID: "id", Time: time.Now()})
	if err != nil || q == nil {
		t.Fatal(q, err)
	}
	q.OnHeader(http.Header{}, 200)
	q.End(200, nil)
}

const everything = "omitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"

// hook starts a webhook that sends its events to the channel, or hangs.
func hook(t *testing.T, hang <-chan struct{}) (config string, events chan auditv1.Event) {
	events = make(chan auditv1.Event, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var list auditv1.EventList
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if hang != nil {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
			return
		}
		if err := json.Unmarshal(body, &list); err != nil || list.Kind != "EventList" {
			t.Errorf("%v: %s", err, body)
		}
		for _, e := range list.Items {
			events <- e
		}
	}))
	t.Cleanup(s.Close)
	return writeFile(t, "hook.kubeconfig", `{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":"`+s.URL+
		`/events"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`), events
}

func start(t *testing.T, a *Auditor) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	return func() { cancel(); <-done }
}

// A webhook gets all events, the last ones when Run ends.
func TestWebhook(t *testing.T) {
	config, events := hook(t, nil)
	a := auditor(t, everything, func(o *Options) { o.Webhook.ConfigFile = config })
	end := start(t, a)
	for range 3 {
		ask(t, a)
	}
	end()
	if len(events) != 3 {
		t.Fatalf("got %d events", len(events))
	}
	e := <-events
	if e.Stage != "ResponseComplete" || e.AuditID != "id" || e.User.Username != "jane" || e.User.UID != "1" || e.User.Extra["k"][0] != "v" ||
		strings.Join(e.SourceIPs, " ") != "10.0.0.1 10.0.0.2 10.0.0.3 192.0.2.1" || e.ResponseStatus.Code != 200 ||
		e.ObjectRef.Resource != "pods" || e.ObjectRef.Name != "x" || e.ObjectRef.Namespace != "a" || e.ObjectRef.APIVersion != "v1" {
		t.Errorf("got %+v", e)
	}
}

// A webhook that hangs delays no requests, dropped events are counted, and Run ends within
// the flush timeout.
func TestWebhookThatHangs(t *testing.T) {
	release := make(chan struct{})
	config, _ := hook(t, release)
	defer close(release)
	const room = 20
	a := auditor(t, everything, func(o *Options) {
		o.Webhook.ConfigFile = config
		o.Webhook.Delivery.Batch.BufferSize, o.Webhook.Delivery.Batch.MaxSize = room, 1
		o.Webhook.Delivery.Batch.Throttle = false
	})
	a.flush = 200 * time.Millisecond
	end, before := start(t, a), lost(t, a, "buffered")
	began := time.Now()
	for range room + maxUnderWay + 5 {
		ask(t, a)
	}
	await.Bar(t, "requests", time.Since(began), 5*time.Second)
	if got := lost(t, a, "buffered") - before; got != 5 {
		t.Errorf("%v events are counted as lost", got)
	}
	began = time.Now()
	end()
	took := time.Since(began)
	if took < a.flush {
		t.Errorf("the end took %v, less than the flush timeout", took)
	}
	await.Bar(t, "the end", took, 20*time.Second)
}

// lost returns upstream's counter of lost events of a plugin.
func lost(t *testing.T, _ *Auditor, plugin string) (n float64) {
	t.Helper()
	for _, f := range gathered(t) {
		for _, m := range f.Metric {
			if f.GetName() == "apiserver_audit_error_total" && m.Label[0].GetValue() == plugin {
				n += m.Counter.GetValue()
			}
		}
	}
	return n
}

// gathered returns upstream's audit metrics.
func gathered(t *testing.T) []*dto.MetricFamily {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	beginning := (&Options{PolicyFile: "x"}).Metrics()[0]
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !strings.HasPrefix(f.GetName(), beginning) })
}

func TestMetrics(t *testing.T) {
	if (&Options{}).Metrics() != nil {
		t.Error("metrics without a policy")
	}
	ask(t, auditor(t, everything, func(*Options) {}))
	var names []string
	for _, f := range gathered(t) {
		names = append(names, strings.TrimPrefix(f.GetName(), metricPrefix))
	}
	// error_total is there once there was an error.
	if got := strings.ReplaceAll(strings.Join(names, " "), "error_total ", ""); got != "event_total level_total requests_rejected_total" {
		t.Errorf("got %s", got)
	}
}

func TestLegacyFormatAndTruncation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "audit.log")
	a := auditor(t, everything, func(o *Options) { o.Log.Path, o.Log.Format = path, FormatLegacy })
	ask(t, a)
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), `AUDIT: id="id" stage="ResponseComplete" ip="10.0.0.1" method="get" user="jane"`) {
		t.Errorf("got %s, %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v", info, err)
	}
	a = auditor(t, everything, func(o *Options) {
		o.Log.Path, o.Log.Delivery.Truncate, o.Log.Delivery.MaxEventBytes = path+"2", true, 10
	})
	before := lost(t, a, "truncate")
	ask(t, a)
	if lost(t, a, "truncate") != before+1 {
		t.Error("an event that is too large was delivered")
	}
}
