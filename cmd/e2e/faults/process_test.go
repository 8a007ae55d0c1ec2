package faults

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
	"portico/internal/testing/await"
)

// An installation takes writes as soon as it reports that it is ready, stops its processes
// in order, and logs no warning. The next start on the same data serves what was written,
// and accepts the kubeconfig and the tokens of the first.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const group, definitions = "restart.example.com", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	const widgets = "/apis/" + group + "/v1/namespaces/default/widgets"
	create := func(up *e2e.Installation, path string, object interface{ MarshalJSON() ([]byte, error) }) {
		t.Helper()
		body, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if code, answer := up.Do(t, http.MethodPost, path, string(body)); code != http.StatusCreated {
			t.Fatalf("%s: %d %s", path, code, answer)
		}
	}
	first := e2e.Install(t, dir)
	create(first, definitions, e2e.Widgets(t, group))
	e2e.Create(t, first, "before")
	first.Shows(t, widgets, `"items":[]`)
	create(first, widgets, e2e.Widget(group, "before"))
	token := serviceAccountToken(t, first)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	said := first.Output.String()
	order := []string{"stopping gateway", "stopping crd", "stopping core", "stopping etcd"}
	for i, line := range order {
		if !strings.Contains(said, line) || i > 0 && strings.Index(said, order[i-1]) > strings.Index(said, line) {
			t.Errorf("%v is not the order of:\n%s", order, said)
			break
		}
	}

	second := e2e.Install(t, dir)
	create(second, widgets, e2e.Widget(group, "after"))
	e2e.Expect(t, second, "before")
	if code, body := second.Do(t, http.MethodGet, widgets+"/before", ""); code != http.StatusOK {
		t.Errorf("the custom resource of the first run: %d %s", code, body)
	}
	cfg := second.Config(t)
	cfg.TLSClientConfig.CertData, cfg.TLSClientConfig.KeyData = nil, nil
	cfg.BearerToken = token
	if user := e2e.Whoami(t, cfg); user != "system:serviceaccount:default:default" {
		t.Errorf("the token of the first run is of user %q", user)
	}
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}
	expectNoWarnings(t, dir)
}

// expectNoWarnings checks that no log of a process of an installation has a warning or an error. It ignores warnings of a
// slow etcd, and of controllers of the core server that run after the gateway has stopped.
func expectNoWarnings(t *testing.T, dir string) {
	t.Helper()
	expected := func(process, line string) bool {
		return strings.Contains(line, "took too long") || strings.Contains(line, "slow fdatasync") || strings.Contains(line, `msg="request stats"`) ||
			strings.Contains(line, "etcd does not answer") || strings.Contains(line, "bootstrap policy") ||
			process == "core" && strings.Contains(line, "a controller failed and repeats") && strings.Contains(line, "connection refused")
	}
	for _, process := range []string{"etcd", "core", "crd", "gateway"} {
		data, err := os.ReadFile(filepath.Join(dir, "logs", process+".log"))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if !strings.Contains(line, "level=INFO") && !expected(process, line) {
				t.Errorf("%s: %s", process, line)
			}
		}
	}
}

func serviceAccountToken(t *testing.T, up *e2e.Installation) string {
	t.Helper()
	var token string
	e2e.Eventually(t, "a token of the default service account is issued", func() error {
		tr, err := up.Client(t).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = tr.Status.Token
		}
		return err
	})
	return token
}

// While the core and the CRD server are stopped by SIGSTOP, discovery is served at once from
// memory. When the program that started the installation is killed, every process of the
// installation ends, stopped ones included, and the next start serves the data.
func TestStoppedServersAndKilledParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up, killParent := e2e.LaunchElsewhere(t, dir)
	e2e.Create(t, up, "before")
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "stopped.example.com")
	up.Shows(t, "/openapi/v3", "apis/stopped.example.com/v1")
	processes := []int{up.Cmd.Process.Pid}
	for _, name := range []string{"etcd", "gateway", "core", "crd"} {
		processes = append(processes, up.Child(t, name))
	}
	for _, pid := range processes[3:] {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	expectDiscovery(t, up)
	killParent()
	for _, pid := range processes {
		e2e.Eventually(t, "the installation has ended", func() error {
			if e2e.Alive(pid) {
				return fmt.Errorf("process %d of %v runs", pid, processes)
			}
			return nil
		})
	}
	e2e.Expect(t, e2e.Install(t, dir), "before")
}

// expectDiscovery checks that discovery documents are served within a second, which is less
// than any timeout of a request to a server.
func expectDiscovery(t *testing.T, up *e2e.Installation) {
	t.Helper()
	client := e2e.HTTPClient(t, up.Config(t))
	aggregated := "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, tc := range []struct{ path, accept, want string }{
		{"/api", "", "APIVersions"},
		{"/apis", "", `"name":"coordination.k8s.io"`},
		{"/api", aggregated, `"resource":"configmaps"`},
		{"/apis", aggregated, `"resource":"leases"`},
		{"/api/v1", "", `"name":"configmaps"`},
		{"/apis", aggregated, `"resource":"widgets"`},
		{"/apis/stopped.example.com", "", "stopped.example.com/v1"},
		{"/apis/stopped.example.com/v1", "", `"name":"widgets"`},
		{"/apis/coordination.k8s.io", "", "coordination.k8s.io/v1"},
		{"/apis/coordination.k8s.io/v1", "", `"name":"leases"`},
		{"/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin", "", "cluster-admin"},
		{"/openapi/v3", "", "apis/coordination.k8s.io/v1"},
		{"/openapi/v3", "", "apis/stopped.example.com/v1"},
		{"/version", "", "v1.37"},
		{"/", "", "/apis/coordination.k8s.io/v1"},
		{"/readyz", "", "ok"},
	} {
		start := time.Now()
		code, body := e2e.Get(t, client, up.Endpoint+tc.path, tc.accept)
		if code != http.StatusOK || !strings.Contains(strings.ReplaceAll(body, ": ", ":"), tc.want) {
			t.Errorf("%s: %d, want %q in\n%.500s", tc.path, code, tc.want, body)
		}
		await.Bar(t, tc.path, time.Since(start), time.Second)
	}
}
