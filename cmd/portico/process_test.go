package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A second start on the same data finds what was there, and what the first one
// gave out (kubeconfig, tokens) stays good.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := launch(dir)
	if err != nil {
		t.Fatal(err)
	}
	create(t, first, "before")
	const group = "restart.example.com"
	widgets := define(t, dynamicClient(t, first.config(t)), group).Namespace("default")
	if _, err := widgets.Create(t.Context(), widget(group, "before"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token := serviceAccountToken(t, first)
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	said := first.output.String()
	order := []string{"stopping gateway", "stopping crd", "stopping core", "stopping etcd"}
	for i, line := range order {
		if !strings.Contains(said, line) || i > 0 && strings.Index(said, order[i-1]) > strings.Index(said, line) {
			t.Errorf("%v is not the order of:\n%s", order, said)
			break
		}
	}

	second := install(t, dir)
	expect(t, second, "before")
	cfg := second.config(t)
	if code, body := get(t, httpClient(t, cfg), second.endpoint+"/apis/"+group+"/v1/namespaces/default/widgets/before", ""); code != http.StatusOK {
		t.Errorf("the custom resource of the first run is %d %s in the second", code, body)
	}
	cfg.TLSClientConfig.CertData, cfg.TLSClientConfig.KeyData = nil, nil
	cfg.BearerToken = token
	if user := whoami(t, cfg); user != "system:serviceaccount:default:default" {
		t.Errorf("the token of the first run is %q in the second", user)
	}
}

// kill -9 of each child, again and again: it comes back, and whatever was
// acknowledged is there.
func TestKilledChildren(t *testing.T) {
	t.Parallel()
	up := install(t, t.TempDir())
	for i, name := range []string{"core", "crd", "gateway", "core", "gateway"} {
		object := fmt.Sprintf("before-%d", i)
		create(t, up, object)
		pid := up.child(t, name)
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, name+" has come back", func() error {
			_, err := up.client(t).CoreV1().ConfigMaps("default").Get(t.Context(), object, metav1.GetOptions{})
			if err == nil && up.child(t, name) == pid {
				return fmt.Errorf("%s is still process %d", name, pid)
			}
			return err
		})
	}
	for i := range 5 {
		expect(t, up, fmt.Sprintf("before-%d", i))
	}
	create(t, up, "after")
}

// Writes go on while children die: each one that was acknowledged is there in
// the end.
func TestWritesWhileChildrenDie(t *testing.T) {
	t.Parallel()
	up := install(t, t.TempDir())
	client := up.client(t)
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
		eventually(t, "writes are acknowledged", func() error {
			if n := count.Load() - from; n < 20 {
				return fmt.Errorf("%d of 20", n)
			}
			return nil
		})
	}
	for _, name := range []string{"core", "gateway"} {
		more()
		if err := syscall.Kill(up.child(t, name), syscall.SIGKILL); err != nil {
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
	up, err := launch(dir)
	if err != nil {
		t.Fatal(err)
	}
	create(t, up, "before")
	etcd, gateway, core, crd := up.child(t, "etcd"), up.child(t, "gateway"), up.child(t, "core"), up.child(t, "crd")
	if err := syscall.Kill(core, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := up.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-up.exited
	for _, pid := range []int{etcd, gateway, core, crd} {
		eventually(t, "child is gone", func() error {
			if alive(pid) {
				return fmt.Errorf("process %d lives", pid)
			}
			return nil
		})
	}
	expect(t, install(t, dir), "before")
}

// With every server behind the gateway stopped in its tracks, discovery is
// answered at once, from memory.
func TestDiscoveryWithStoppedBackends(t *testing.T) {
	t.Parallel()
	up := install(t, t.TempDir())
	define(t, dynamicClient(t, up.config(t)), "stopped.example.com")
	eventually(t, "its APIService is there", func() error {
		_, err := up.kubectl(t, "get", "apiservice", "v1.stopped.example.com")
		return err
	})
	for _, name := range []string{"core", "crd"} {
		pid := up.child(t, name)
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// Else it could not stop in order at the end.
		t.Cleanup(func() { syscall.Kill(pid, syscall.SIGCONT) })
	}
	client := httpClient(t, up.config(t))
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
		code, body := get(t, client, up.endpoint+tc.path, tc.accept)
		if code != http.StatusOK || !strings.Contains(strings.ReplaceAll(body, ": ", ":"), tc.want) {
			t.Errorf("%s: %d, want %q in\n%.500s", tc.path, code, tc.want, body)
		}
		// Waiting for the backend would take its timeouts: seconds.
		if took := time.Since(start); took > time.Second {
			t.Errorf("%s took %v", tc.path, took)
		}
	}
}

func create(t *testing.T, up *installation, name string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"name": name}}
	if _, err := up.client(t).CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func expect(t *testing.T, up *installation, name string) {
	t.Helper()
	cm, err := up.client(t).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cm.Data["name"] != name {
		t.Errorf("%s holds %v", name, cm.Data)
	}
}

func serviceAccountToken(t *testing.T, up *installation) string {
	t.Helper()
	var token string
	eventually(t, "the default service account gives a token", func() error {
		tr, err := up.client(t).CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = tr.Status.Token
		}
		return err
	})
	return token
}

func httpClient(t *testing.T, cfg *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = patienceInTests
	return client
}

func get(t *testing.T, client *http.Client, url, accept string) (code int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	return send(t, client, req)
}

func send(t *testing.T, client *http.Client, req *http.Request) (code int, body string) {
	t.Helper()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}
