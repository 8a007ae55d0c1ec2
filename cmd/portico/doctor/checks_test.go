package doctor

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"portico/apiservice/backend"
	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/client"
	"portico/cmd/portico/inspect"
	"portico/gateway/installation"
	"portico/resource/etcd"
	"portico/resource/identity"
)

// badTarget makes a target of which a check warns, or that fails it.
type badTarget struct {
	check string
	want  verdict
	text  string // part of the finding
	make  func(t *testing.T) *target
}

// withFolder returns a target with a data folder and certificates that were made at a time.
func withFolder(change func(t *testing.T, dir string, p *target), made time.Time) func(*testing.T) *target {
	return func(t *testing.T) *target {
		dir := t.TempDir()
		if _, err := pki.Ensure(pki.Config{Dir: filepath.Join(dir, "pki"), Hosts: []string{"localhost"}, Now: made}); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		p := observe(t.Context(), nil, &inspect.Folder{Path: dir}, errors.New("no kubeconfig"))
		change(t, dir, p)
		return p
	}
}

// clientOf returns a client of a URL.
func clientOf(t *testing.T, url string) *client.Client {
	t.Helper()
	c, err := client.New(&rest.Config{Host: url}, time.Second, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answering returns a target with a gateway that answers each path with a text.
func answering(answers map[string]string) func(*testing.T) *target {
	return func(t *testing.T) *target {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, answers[r.URL.Path])
		}))
		t.Cleanup(s.Close)
		return &target{gateway: clientOf(t, s.URL), view: new(inspect.View), write: true}
	}
}

// seen returns a target with what the gateway reports.
func seen(v inspect.View, metrics string) func(*testing.T) *target {
	return func(t *testing.T) *target {
		v.Metrics = inspect.Metrics{}
		if err := v.Metrics.Add([]byte(metrics + "\n")); err != nil {
			t.Fatal(err)
		}
		return &target{gateway: clientOf(t, "http://gateway.invalid"), view: &v}
	}
}

// reported returns a target with what the gateway reports of etcd.
func reported(r etcd.Report) func(*testing.T) *target {
	return seen(inspect.View{Installation: &installation.Report{Etcd: r}}, "")
}

func elected(names ...string) (r etcd.Report) {
	for _, name := range names {
		r.Elections = append(r.Elections, etcd.Election{Name: name, Leader: "a"})
	}
	return r
}

func members(all ...etcd.Member) etcd.Report { return etcd.Report{Members: all} }

func backends(all ...backend.Backend) func(*testing.T) *target {
	return seen(inspect.View{Backends: all}, "")
}

// one returns a Backend with endpoints in states.
func one(states ...backend.EndpointState) (b backend.Backend) {
	b.Name = "billing"
	for i, s := range states {
		b.Status.Endpoints = append(b.Status.Endpoints, backend.EndpointStatus{URL: fmt.Sprintf("https://b%d:443", i), State: s, LastError: "refused"})
	}
	return b
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

var now = time.Now()

// badTargets has at least one row for each check that needs no installation.
var badTargets = []badTarget{
	{"data-folder", warns, "sockets of one that was killed", withFolder(func(t *testing.T, dir string, _ *target) { write(t, dir+"/run/core.sock", "") }, now)},
	{"data-folder", warns, "no portico up uses", withFolder(func(*testing.T, string, *target) {}, now)},
	{"data-folder", failed, "crd.sock is gone", withFolder(func(t *testing.T, dir string, p *target) { write(t, dir+"/run/core.sock", ""); p.holder = 1 }, now)},
	{"file-modes", failed, "core.key has mode 0640", withFolder(func(t *testing.T, dir string, _ *target) {
		if err := os.Chmod(dir+"/pki/core.key", 0o640); err != nil {
			t.Error(err)
		}
	}, now)},
	{"file-modes", warns, "pki has mode 0755", withFolder(func(t *testing.T, dir string, _ *target) {
		if err := os.Chmod(dir+"/pki", 0o755); err != nil {
			t.Error(err)
		}
	}, now)},
	{"disk-space", failed, "10 MiB are free", withFolder(space(10<<20, 100, 100), now)},
	{"disk-space", warns, "100 MiB are free", withFolder(space(100<<20, 100, 100), now)},
	{"disk-space", warns, "0 of 100 inodes", withFolder(space(10<<30, 0, 100), now)},
	{"disk-sync", failed, "a write takes 70ms", withFolder(syncing(70*time.Millisecond, nil), now)},
	{"disk-sync", warns, "a write takes 20ms", withFolder(syncing(20*time.Millisecond, nil), now)},
	{"disk-sync", failed, "no space left", withFolder(syncing(0, syscall.ENOSPC), now)},
	{"logs", warns, "1 files have 400 MiB", withFolder(func(t *testing.T, dir string, _ *target) {
		write(t, dir+"/logs/core.log", "")
		if err := os.Truncate(dir+"/logs/core.log", 400<<20); err != nil {
			t.Error(err)
		}
	}, now)},
	{"key-pairs", failed, "core.key: tls: private key does not match", withFolder(func(t *testing.T, dir string, _ *target) {
		if err := os.Rename(dir+"/pki/crd.key", dir+"/pki/core.key"); err != nil {
			t.Error(err)
		}
	}, now)},
	{"certificates", failed, "gateway.crt ended ", withFolder(func(*testing.T, string, *target) {}, now.AddDate(-2, 0, 0))},
	{"certificates", warns, "gateway.crt ends in ", withFolder(func(*testing.T, string, *target) {}, now.AddDate(-1, 0, 10))},
	{"certificates", failed, "core.crt ended ", seen(inspect.View{}, `portico_certificate_expiration_timestamp_seconds{usage="serving",file="core.crt"} 1000`)},
	{"authorities", warns, "serving-ca.crt ends in ", withFolder(func(*testing.T, string, *target) {}, now.AddDate(-9, -6, 0))},
	{"authorities", failed, "client-ca.crt ended ", seen(inspect.View{}, `portico_certificate_expiration_timestamp_seconds{usage="client-ca",file="client-ca.crt"} 1000`)},
	{"open-files", warns, "a process may open 1024 files", seen(inspect.View{}, "process_max_fds 1024\nprocess_open_fds 10")},
	{"open-files", failed, "1000 of 1024 files open", seen(inspect.View{}, "process_max_fds 1024\nprocess_open_fds 1000")},
	{"systemd", warns, "portico-core.service is not enabled", func(t *testing.T) *target {
		dir := t.TempDir()
		write(t, dir+"/portico-core.service", "[Install]\nWantedBy=multi-user.target\n")
		write(t, dir+"/portico-crd.service", "[Install]\nWantedBy=multi-user.target\n")
		write(t, dir+"/multi-user.target.wants/portico-crd.service", "")
		return &target{units: dir}
	}},
	{"kubeconfig", failed, "no kubeconfig", withFolder(func(*testing.T, string, *target) {}, now)},
	{"kubeconfig", failed, "does not know", seen(inspect.View{Unread: []inspect.Unread{{What: "APIs", Why: "the gateway does not know the user", Unauthorized: true}}}, "")},
	{"name", failed, "gateway.invalid", seen(inspect.View{}, "")},
	{"port", failed, "connection refused", func(t *testing.T) *target {
		s := httptest.NewServer(nil)
		s.Close()
		return &target{gateway: clientOf(t, s.URL)}
	}},
	{"clock", failed, "1h0m0s ahead", answered(time.Hour)},
	{"clock", warns, "s ahead", answered(-10 * time.Second)},
	{"readiness", failed, "etcd fails", seen(inspect.View{Failed: []string{"etcd"}}, "")},
	{"readiness", warns, "certificate", seen(inspect.View{Warnings: []string{"certificate ends"}}, "")},
	{"versions", failed, "core a has v1.35.0, and the gateway v1.37.2", seen(inspect.View{Installation: &installation.Report{Version: "v1.37.2", Processes: []identity.Process{{Component: "core", Instance: "a", Version: "v1.35.0"}}}}, "")},
	{"versions", warns, "crd b has v1.37.1, and the gateway v1.37.2", seen(inspect.View{Installation: &installation.Report{Version: "v1.37.2", Processes: []identity.Process{{Component: "crd", Instance: "b", Version: "v1.37.1"}}}}, "")},
	{"servers", warns, "gateway c is silent since 2026-01-02T03:04:05Z", seen(inspect.View{Installation: &installation.Report{Time: now, Processes: []identity.Process{{Component: "gateway", Instance: "c", Renewed: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}}}, "")},
	{"servers", failed, "crd: away", seen(inspect.View{Installation: &installation.Report{Version: "v1.37.2", Servers: []installation.Server{{Name: "crd", Error: "away"}}}}, "")},
	{"leaders", failed, "crd has no leader", reported(elected("controllers", "garbage-collector", "gateway", "service-repair"))},
	{"refusals", warns, "7 with 429, 2 for Backend billing", seen(inspect.View{}, `apiserver_request_terminations_total{code="429"} 7`+"\n"+`portico_upstream_queue_rejections_total{backend="billing"} 2`)},
	{"audit", failed, "no sink", answering(map[string]string{"/flagz": `{"flags":{"audit-policy-file":"p.yaml"}}`})},
	{"audit", failed, "no policy", answering(map[string]string{"/flagz": `{"flags":{"audit-log-path":"-"}}`})},
	{"audit", failed, "3 events were lost", func(t *testing.T) *target {
		p := answering(map[string]string{"/flagz": `{"flags":{"audit-log-path":"-","audit-policy-file":"p.yaml"}}`})(t)
		p.view = seen(inspect.View{}, `apiserver_audit_error_total{plugin="log"} 3`)(t).view
		return p
	}},
	{"last-good", warns, "4 documents", seen(inspect.View{}, "portico_gateway_last_good_documents 4")},
	{"etcd-members", failed, "b: refused", reported(members(etcd.Member{Endpoint: "a", Leader: true}, etcd.Member{Endpoint: "b", Error: "refused"}, etcd.Member{Endpoint: "c"}))},
	{"etcd-members", failed, "2 members lead", reported(members(etcd.Member{Leader: true}, etcd.Member{Leader: true}, etcd.Member{}))},
	{"etcd-members", warns, "none of the 3 members", reported(members(etcd.Member{}, etcd.Member{}, etcd.Member{}))},
	{"etcd-members", warns, "2 members survive", reported(members(etcd.Member{Leader: true}, etcd.Member{}))},
	{"etcd-members", warns, "2 versions", reported(members(etcd.Member{Leader: true, Version: "3.6.0"}, etcd.Member{Version: "3.5.0"}, etcd.Member{Version: "3.5.0"}))},
	{"etcd-alarms", failed, "a: alarm:NOSPACE", reported(members(etcd.Member{Endpoint: "a", Alarms: []string{"alarm:NOSPACE"}}))},
	{"etcd-space", failed, "a uses 95 of 100 MiB", reported(members(etcd.Member{Endpoint: "a", InUse: 95 << 20, Quota: 100 << 20}))},
	{"etcd-space", warns, "a uses 80 of 100 MiB", reported(members(etcd.Member{Endpoint: "a", InUse: 80 << 20, Quota: 100 << 20}))},
	{"etcd-fragments", warns, "a uses 50 of the 200 MiB", reported(members(etcd.Member{Endpoint: "a", InUse: 50 << 20, Size: 200 << 20}))},
	{"etcd-latency", warns, "a answers in 200 ms", reported(members(etcd.Member{Endpoint: "a", Milliseconds: 200}))},
	{"etcd-latency", failed, "a answers in 2000 ms", reported(members(etcd.Member{Endpoint: "a", Milliseconds: 2000}))},
	{"endpoints", warns, "https://b1:443 is Ejected: refused", backends(one(backend.EndpointHealthy, backend.EndpointEjected))},
	{"endpoints", failed, "billing has no healthy endpoint", backends(one(backend.EndpointUnhealthy))},
	{"single-endpoints", warns, "billing", backends(one(backend.EndpointHealthy))},
	{"trust", warns, "Backend billing", backends(backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "billing"}, Spec: backend.Spec{TLS: &backend.TLS{InsecureSkipVerify: true}}})},
	{"discovery", warns, "g/v1 of billing is stale", backends(backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "billing"}, Status: backend.Status{GroupVersions: []backend.GroupVersionStatus{{Group: "g", Version: "v1", Freshness: "Stale"}}}})},
	{"discovery", warns, "3 group/versions of billing", seen(inspect.View{}, `portico_discovery_dropped_group_versions{backend="billing"} 3`)},
	{"openapi", warns, "v1.g of billing", seen(inspect.View{}, `portico_gateway_openapi_broken{backend="billing",group_version="v1.g"} 1`)},
	{"definitions", warns, "NonStructuralSchema: no type", answering(map[string]string{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": `{"items":[{"metadata":{"name":"a"},"status":{"conditions":[{"type":"NonStructuralSchema","status":"True","message":"no type"}]}}]}`})},
	{"namespaces", warns, "stuck for 60m: finalizers remain", answering(map[string]string{"/api/v1/namespaces": stuck()})},
	{"tokens", failed, "refuses a token", answering(map[string]string{
		"/api/v1/namespaces/default/serviceaccounts/default/token": `{"status":{"token":"t"}}`, "/apis/authentication.k8s.io/v1/tokenreviews": `{"status":{"authenticated":false,"error":"issuer"}}`})},
	{"events", warns, "300000 events", answering(map[string]string{"/api/v1/events": `{"metadata":{"remainingItemCount":299999},"items":[{}]}`})},
}

func space(free, inodesFree, inodes uint64) func(*testing.T, string, *target) {
	return func(_ *testing.T, _ string, p *target) {
		p.statfs = func(_ string, s *syscall.Statfs_t) error {
			s.Bsize, s.Bavail, s.Ffree, s.Files = 1, free, inodesFree, inodes
			return nil
		}
	}
}

func syncing(took time.Duration, err error) func(*testing.T, string, *target) {
	return func(_ *testing.T, _ string, p *target) {
		p.write, p.sync = true, func(string) (time.Duration, error) { return took, err }
	}
}

// answered returns a target with a clock that is ahead of the gateway's.
func answered(ahead time.Duration) func(*testing.T) *target {
	return func(t *testing.T) *target {
		p := seen(inspect.View{}, "")(t)
		p.answered = now
		p.answer = &http.Response{Header: http.Header{"Date": {now.Add(-ahead).UTC().Format(http.TimeFormat)}}}
		return p
	}
}

func stuck() string {
	n := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stuck", DeletionTimestamp: &metav1.Time{Time: now.Add(-time.Hour)}}}
	return fmt.Sprintf(`{"items":[{"metadata":{"name":%q,"deletionTimestamp":%q},"status":{"conditions":[{"type":"NamespaceFinalizersRemaining","status":"True","message":"finalizers remain"}]}}]}`,
		n.Name, n.DeletionTimestamp.UTC().Format(time.RFC3339))
}

// row returns a check by its name.
func row(t *testing.T, name string) check {
	t.Helper()
	i := slices.IndexFunc(checks, func(c check) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no check %s", name)
	}
	return checks[i]
}

func TestChecksFail(t *testing.T) {
	t.Parallel()
	for _, s := range badTargets {
		t.Run(s.check+" "+s.text, func(t *testing.T) {
			t.Parallel()
			if f := row(t, s.check).run(t.Context(), s.make(t)); f.verdict != s.want || !strings.Contains(f.text, s.text) {
				t.Errorf("found %s %q, want %s %q", f.verdict, f.text, s.want, s.text)
			}
		})
	}
	for used, want := range map[float64]verdict{950: failed, 800: warns, 100: good} {
		if f := judgeMemory(used, 1000); f.verdict != want {
			t.Errorf("memory of %v: %v", used, f)
		}
	}
}

// What is found says what it counts, in the singular if there is one.
func TestGoodFindings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		check, text string
		make        func(*testing.T) *target
	}{
		{"single-endpoints", "none of 1 Backend beside core and crd", backends(backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "core"}}, one(backend.EndpointHealthy, backend.EndpointHealthy))},
		{"single-endpoints", "there are no Backends beside core and crd", backends(backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "core"}})},
		{"endpoints", "1 Backend", backends(one(backend.EndpointHealthy))},
	} {
		if f := row(t, c.check).run(t.Context(), c.make(t)); f.verdict != good || f.text != c.text {
			t.Errorf("%s found %s %q, want %q", c.check, f.verdict, f.text, c.text)
		}
	}
	if f := judgeClock(time.Second); f.text != "this clock and the gateway's differ by less than 4s" {
		t.Errorf("the clock: %q", f.text)
	}
	var out strings.Builder
	if err := print(&out, "", []Result{{Check: "a", Verdict: warns}, {Check: "b", Verdict: good}}, nil); err != nil || !strings.HasSuffix(out.String(), "\n1 OK, 1 warning, 0 failed, 0 skipped\n") {
		t.Errorf("%v %s", err, &out)
	}
}

// Every check is made to fail by a row above, or in an installation, and has advice of which the
// links exist.
func TestTable(t *testing.T) {
	t.Parallel()
	if len(checks) < 30 {
		t.Errorf("there are %d checks", len(checks))
	}
	runbook, err := os.ReadFile(filepath.Join(e2e.Repository(), "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{"memory": true, "proxy": true, "server-certificate": true}
	for _, s := range badTargets {
		seen[s.check] = true
	}
	for _, s := range badObjects {
		seen[s.check] = true
	}
	names := map[string]bool{}
	for _, c := range checks {
		if names[c.name] || c.what == "" || c.advice == "" {
			t.Errorf("%s is there twice, or not whole", c.name)
		}
		names[c.name] = true
		if !seen[c.name] {
			t.Errorf("nothing makes %s fail", c.name)
		}
		for _, m := range regexp.MustCompile(`docs/runbook\.md#(\w+)`).FindAllStringSubmatch(c.advice, -1) {
			if !regexp.MustCompile(`(?mi)^### ` + m[1] + `$`).Match(runbook) {
				t.Errorf("%s: the runbook has no %s", c.name, m[1])
			}
		}
	}
}

// The write of the check of the disk leaves nothing.
func TestSyncOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if took, err := syncOnce(dir); took <= 0 || err != nil {
		t.Errorf("%v, %v", took, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A proxy of the environment that takes requests for the gateway is warned of, one that NO_PROXY
// excepts is not.
func TestProxy(t *testing.T) {
	p := &target{gateway: clientOf(t, "https://gateway.example:6443")}
	t.Setenv("HTTPS_PROXY", "http://user:secret@proxy.example:3128")
	if f := row(t, "proxy").run(t.Context(), p); f.verdict != warns || !strings.Contains(f.text, "proxy.example:3128") || strings.Contains(f.text, "secret") {
		t.Errorf("found %v", f)
	}
	t.Setenv("NO_PROXY", "gateway.example")
	if f := row(t, "proxy").run(t.Context(), p); f.verdict != good {
		t.Errorf("with NO_PROXY: %v", f)
	}
}

// A namespace that waits for a server is reported from the first seconds, with what to do; one that takes its time is not.
func TestNamespacesThatWait(t *testing.T) {
	t.Parallel()
	now := time.Now()
	terminating := func(name string, age time.Duration, kind corev1.NamespaceConditionType) corev1.Namespace {
		deleted := metav1.NewTime(now.Add(-age))
		return corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: &deleted}, Status: corev1.NamespaceStatus{
			Conditions: []corev1.NamespaceCondition{{Type: kind, Status: corev1.ConditionTrue, Message: "why of " + name}},
		}}
	}
	got := judgeNamespaces([]corev1.Namespace{
		terminating("busy", time.Second, corev1.NamespaceContentRemaining),
		terminating("waits", time.Second, corev1.NamespaceDeletionContentFailure),
		terminating("long", time.Hour, corev1.NamespaceFinalizersRemaining),
	}, now)
	if got.verdict != warns || !strings.Contains(got.text, "why of waits") || !strings.Contains(got.text, "why of long") || strings.Contains(got.text, "busy") {
		t.Errorf("the finding is %+v", got)
	}
}
