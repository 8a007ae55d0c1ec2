package status

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/backend"
	"portico/cmd/portico/cli"
	"portico/cmd/portico/inspect"
	"portico/gateway/installation"
	"portico/resource/etcd"
	"portico/resource/identity"
)

// What is wrong is a problem, a line each, and red on a terminal.
func TestProblems(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := &Status{Endpoint: "https://gateway:6443", Gateway: &Gateway{Failed: []string{"etcd"}}}
	s.Installation = &installation.Report{Instance: "a", Started: now.Add(-time.Minute), Time: now, Servers: []installation.Server{{Name: "core", Error: "refused"}},
		Processes: []identity.Process{
			{Lease: "apiserver-1", Component: "gateway", Instance: "a", Version: "v1.37.2", Address: "10.0.0.1:6443", Started: now.Add(-time.Hour), Renewed: now.Add(-9 * time.Second)},
			{Lease: "apiserver-2", Component: "core", Instance: "b", Version: "v1.37.1", Address: "10.0.0.2:7443", Started: now.Add(-time.Minute), Renewed: now.Add(-42 * time.Second)},
		},
		Etcd: etcd.Report{
			Members:   []etcd.Member{{Endpoint: "https://etcd-0:2379", Leader: true, Alarms: []string{"alarm:NOSPACE"}, Size: 3 << 30, Quota: 8 << 30}, {Endpoint: "https://etcd-1:2379", Error: "no answer"}},
			Elections: []etcd.Election{{Name: "controllers", Leader: "a", Waiting: 2}, {Name: "crd", Leader: "b"}, {Name: "garbage-collector", Leader: "a"}, {Name: "gateway", Leader: "a"}},
		}}
	s.judgeInstallation(s.Installation)
	m := inspect.Metrics{}
	if err := m.Add([]byte(`# TYPE apiserver_request_terminations_total counter
apiserver_request_terminations_total{code="429"} 7
# TYPE apiserver_admission_webhook_rejection_count counter
apiserver_admission_webhook_rejection_count{name="policy.example.com",error_type="calling_webhook_error"} 3
apiserver_admission_webhook_rejection_count{name="policy.example.com",error_type="no_error"} 5
# TYPE portico_certificate_expiration_timestamp_seconds gauge
portico_certificate_expiration_timestamp_seconds{usage="serving",file="gateway.crt"} 1000
`)); err != nil {
		t.Fatal(err)
	}
	s.readCertificates(m, now)
	s.readLoads(m)
	s.APIs = new(Counts)
	for range 7 {
		s.APIs.Down = append(s.APIs.Down, Down{"v1.billing.example.com", "MissingEndpoints", "none"})
	}
	want := []string{"core server: refused", "core b: silent for 42s; if it is gone for good: kubectl delete lease -n kube-system apiserver-2", "etcd https://etcd-0:2379: alarm:NOSPACE", "etcd https://etcd-1:2379: no answer", "no process leads service-repair"}
	if got := s.Problems[:5]; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("problems are %q", got)
	}
	if err := s.err(); err == nil || !strings.HasPrefix(err.Error(), "not healthy: 6 problems: ") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	var plain, colored, wide strings.Builder
	print := func(w *strings.Builder, paint func(cli.Color, string) string, all bool) {
		if err := (&printer{w: w, paint: paint, wide: all, now: now}).status(s); err != nil {
			t.Fatal(err)
		}
	}
	without := func(_ cli.Color, text string) string { return text }
	print(&plain, without, false)
	print(&wide, without, true)
	print(&colored, func(c cli.Color, text string) string { return string(c) + text }, false)
	for _, want := range []string{"Ready        no: etcd failed", "Processes    gateway  a  v1.37.2  10.0.0.1:6443  up 60m\n             core     b  v1.37.1  10.0.0.2:7443  up 60s  silent for 42s\n", "Away         core  refused", "controllers        a  2 waiting", "leads  3.0 GiB, 0 KiB in use of 8.0 GiB", "Refused      429: 7", "Failed hooks policy.example.com: 3",
		"serving ended ", "and 2 more, which -o wide shows", "Problems     core server: refused"} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("%q is not in\n%s", want, &plain)
		}
	}
	if n := strings.Count(wide.String(), "MissingEndpoints"); n != 7 || !strings.Contains(colored.String(), string(cli.Red)+"429: 7") {
		t.Errorf("wide has %d APIs; with color:\n%s", n, &colored)
	}
}

// Backends are counted, not their endpoints: those that are not available are down, and those of
// which an endpoint is down are partly down. A drained endpoint is not down.
func TestBackendsAreCounted(t *testing.T) {
	t.Parallel()
	with := func(name string, available metav1.ConditionStatus, states ...backend.EndpointState) backend.Backend {
		b := backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: name}}
		b.Status.Conditions = []metav1.Condition{{Type: backend.Available, Status: available, Reason: "FailedDiscoveryCheck", Message: "refused"}}
		for _, s := range states {
			b.Status.Endpoints = append(b.Status.Endpoints, backend.EndpointStatus{URL: "https://" + name, State: s, LastError: "EOF"})
		}
		return b
	}
	s := new(Status)
	s.readBackends(&inspect.View{Backends: []backend.Backend{
		with("core", metav1.ConditionTrue, backend.EndpointHealthy, backend.EndpointUnhealthy, backend.EndpointHealthy),
		with("crd", metav1.ConditionTrue, backend.EndpointHealthy, backend.EndpointDraining),
		with("todo", metav1.ConditionFalse, backend.EndpointUnhealthy, backend.EndpointEjected),
		with("new", metav1.ConditionUnknown, backend.EndpointUnknown),
	}})
	if want := []string{"1 of 4 Backends are not available", "1 of 4 Backends are partly down"}; !slices.Equal(s.Problems, want) {
		t.Errorf("problems are %q", s.Problems)
	}
	var out strings.Builder
	(&printer{w: &out, paint: func(_ cli.Color, text string) string { return text }}).counts("Backends", s.Backends)
	if want := `Backends     4, 1 down, 1 partly down
             todo: FailedDiscoveryCheck: refused
             core: 1 of 3 endpoints: https://core is Unhealthy: EOF
`; out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}
