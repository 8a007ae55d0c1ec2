package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portico/cmd/e2e"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A second start on the same data finds what was there, and what the first one
// gave out (kubeconfig, tokens) stays good.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := e2e.Launch(dir)
	if err != nil {
		t.Fatal(err)
	}
	e2e.Create(t, first, "before")
	const group = "restart.example.com"
	widgets := e2e.Define(t, e2e.DynamicClient(t, first.Config(t)), group).Namespace("default")
	if _, err := widgets.Create(t.Context(), e2e.Widget(group, "before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
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
	e2e.Expect(t, second, "before")
	cfg := second.Config(t)
	if code, body := e2e.Get(t, e2e.HTTPClient(t, cfg), second.Endpoint+"/apis/"+group+"/v1/namespaces/default/widgets/before", ""); code != http.StatusOK {
		t.Errorf("the custom resource of the first run is %d %s in the second", code, body)
	}
	cfg.TLSClientConfig.CertData, cfg.TLSClientConfig.KeyData = nil, nil
	cfg.BearerToken = token
	if user := e2e.Whoami(t, cfg); user != "system:serviceaccount:default:default" {
		t.Errorf("the token of the first run is %q in the second", user)
	}
}

// kill -9 of each child, again and again: it comes back, and whatever was
// acknowledged is there.
func TestKilledChildren(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	for i, name := range []string{"core", "crd", "gateway", "core", "gateway"} {
		object := fmt.Sprintf("before-%d", i)
		e2e.Create(t, up, object)
		pid := up.Child(t, name)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		e2e.Eventually(t, name+" has come back", func() error {
			_, err := up.Client(t).CoreV1().ConfigMaps("default").Get(t.Context(), object, metav1.GetOptions{})
			if err == nil && up.Child(t, name) == pid {
				return fmt.Errorf("%s is still process %d", name, pid)
			}
			return err
		})
	}
	for i := range 5 {
		e2e.Expect(t, up, fmt.Sprintf("before-%d", i))
	}
	e2e.Create(t, up, "after")
}

// Writes go on while children die: each one that was acknowledged is there in
// the end.
func TestWritesWhileChildrenDie(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	client := up.Client(t)
	maps := client.CoreV1().ConfigMaps("default")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var count atomic.Int64
	acknowledged := make(chan []string, 1)
	go func() {
		var names []string
		defer func() { acknowledged <- names }()
		for i := 0; ctx.Err() == nil; i++ {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w-%d", i)}}
			if _, err := maps.Create(ctx, cm, metav1.CreateOptions{}); err == nil {
				names = append(names, cm.Name)
				count.Add(1)
			}
		}
	}()
	more := func() {
		t.Helper()
		from := count.Load()
		e2e.Eventually(t, "writes are acknowledged", func() error {
			if n := count.Load() - from; n < 20 {
				return fmt.Errorf("%d of 20", n)
			}
			return nil
		})
	}
	for _, name := range []string{"core", "gateway"} {
		more()
		if err := syscall.Kill(up.Child(t, name), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	more()
	cancel()
	names := <-acknowledged
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, cm := range list.Items {
		there[cm.Name] = true
	}
	for _, name := range names {
		if !there[name] {
			t.Errorf("%s was acknowledged and is lost (of %d)", name, len(names))
		}
	}
}

// kill -9 of the supervisor takes everything with it, also a child that is
// stopped, and leaves data that the next start takes up.
func TestKilledSupervisor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up, err := e2e.Launch(dir)
	if err != nil {
		t.Fatal(err)
	}
	e2e.Create(t, up, "before")
	etcd, gateway, core, crd := up.Child(t, "etcd"), up.Child(t, "gateway"), up.Child(t, "core"), up.Child(t, "crd")
	if err := syscall.Kill(core, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := up.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-up.Exited
	for _, pid := range []int{etcd, gateway, core, crd} {
		e2e.Eventually(t, "child is gone", func() error {
			if e2e.Alive(pid) {
				return fmt.Errorf("process %d lives", pid)
			}
			return nil
		})
	}
	e2e.Expect(t, e2e.Install(t, dir), "before")
}

// With every server behind the gateway stopped in its tracks, discovery is
// answered at once, from memory.
func TestDiscoveryWithStoppedBackends(t *testing.T) {
	t.Parallel()
	up := e2e.Install(t, t.TempDir())
	e2e.Define(t, e2e.DynamicClient(t, up.Config(t)), "stopped.example.com")
	e2e.Eventually(t, "its APIService is there", func() error {
		_, err := up.Kubectl(t, "get", "apiservice", "v1.stopped.example.com")
		return err
	})
	for _, name := range []string{"core", "crd"} {
		pid := up.Child(t, name)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// Else it could not stop in order at the end.
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	}
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
		// Waiting for the backend would take its timeouts: seconds.
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s took %v", tc.path, took)
		}
	}
}

func serviceAccountToken(t *testing.T, up *e2e.Installation) string {
	t.Helper()
	var token string
	e2e.Eventually(t, "the default service account gives a token", func() error {
		tr, err := up.Client(t).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = tr.Status.Token
		}
		return err
	})
	return token
}

// An installation ends when the test binary that started it is killed.
func TestKilledTestBinaryLeavesNoInstallation(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), e2e.LauncherEnv+"="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	_, err = fmt.Fscan(out, &pid)
	cmd.Process.Kill()
	_ = cmd.Wait() // killed
	if err != nil {
		t.Fatal("read the process id of the installation:", err)
	}
	e2e.Eventually(t, "the installation has ended", func() error {
		if e2e.Alive(pid) {
			return fmt.Errorf("process %d runs", pid)
		}
		return nil
	})
}
