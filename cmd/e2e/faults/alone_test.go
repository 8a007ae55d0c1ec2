package faults

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"portico/cmd/e2e"
	"portico/cmd/internal/embedetcd"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/testtools"
)

// alone is an installation without `up`, whose processes do not restart by themselves. They
// run with documented flags only, the servers behind the gateway on TLS.
type alone struct {
	sockets   string            // folder of etcd's socket
	up        *e2e.Installation // without Cmd: the gateway and the administrator's kubeconfig
	files     *pki.Files
	etcd      string
	member    *embedetcd.Server   // a test may stop it and start another
	addresses map[string]string   // host:port by subcommand
	extra     map[string][]string // further flags by subcommand
	processes map[string]*exec.Cmd
}

func newAlone(t *testing.T) *alone {
	t.Helper()
	dir := t.TempDir()
	a := &alone{up: &e2e.Installation{Installation: &testtools.Installation{Dir: dir}}, addresses: map[string]string{}, processes: map[string]*exec.Cmd{}}
	var err error
	if a.files, err = pki.Ensure(pki.Config{Dir: filepath.Join(dir, "pki")}); err != nil {
		t.Fatal(err)
	}
	// t.TempDir would be too long for the path of a socket.
	sockets, err := os.MkdirTemp("", "pe")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(sockets) })
	a.sockets = sockets
	a.startEtcd(t)
	t.Cleanup(func() { a.member.Close() })
	for _, name := range []string{"gateway", "core", "crd"} {
		a.addresses[name] = net.JoinHostPort("127.0.0.1", e2e.FreePort(t, "127.0.0.1"))
	}
	a.up.Endpoint = "https://" + a.addresses["gateway"]
	a.up.Kubeconfig = filepath.Join(dir, "kubeconfig")
	if err := pki.WriteKubeconfig(a.up.Kubeconfig, a.up.Endpoint, a.files.ServingCAFile, a.files.Admin); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	// Runs after the cleanups of the processes, which are registered later.
	t.Cleanup(func() {
		if t.Failed() {
			a.up.DumpLogs(t)
		}
	})
	return a
}

// startEtcd starts the member; an earlier one must be closed.
func (a *alone) startEtcd(t *testing.T) {
	t.Helper()
	member, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: filepath.Join(a.up.Dir, "etcd"), SocketDir: a.sockets, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a.member, a.etcd = member, member.Endpoint()
}

// args returns the command line of a process.
func (a *alone) args(name string) []string {
	args := []string{
		name, "--listen=" + a.addresses[name], "--etcd-servers=" + a.etcd,
		"--tls-cert-file=" + a.files.Serving.CertFile, "--tls-private-key-file=" + a.files.Serving.KeyFile,
		"--requestheader-client-ca-file=" + a.files.FrontProxyCAFile, "--requestheader-allowed-names=" + pki.FrontProxyName,
	}
	args = append(args, a.extra[name]...)
	if name == "gateway" {
		return append(args,
			"--client-ca-file="+a.files.ClientCAFile,
			"--proxy-client-cert-file="+a.files.FrontProxy.CertFile, "--proxy-client-key-file="+a.files.FrontProxy.KeyFile,
			"--backend=core=https://"+a.addresses["core"], "--backend=crd=https://"+a.addresses["crd"],
			"--backend-ca-file="+a.files.ServingCAFile)
	}
	own := map[string]pki.Pair{"core": a.files.Core, "crd": a.files.CRD}[name]
	return append(args,
		"--gateway="+a.up.Endpoint, "--gateway-ca-file="+a.files.ServingCAFile,
		"--gateway-cert-file="+own.CertFile, "--gateway-key-file="+own.KeyFile)
}

// start starts a process and kills it at the end of the test.
func (a *alone) start(t *testing.T, name string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(a.up.Dir, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(e2e.Program(t, testtools.Portico), a.args(name)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.processes[name] = cmd
	t.Cleanup(func() {
		cmd.Process.Kill()
		_ = cmd.Wait() // its error is that it was killed, or waited for by kill9
	})
}

// kill9 kills a process and waits for its end.
func (a *alone) kill9(t *testing.T, name string) {
	t.Helper()
	if err := a.processes[name].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.processes[name].Wait()
}

// reached waits until the gateway responds to a GET of path with 200.
func (a *alone) reached(t *testing.T, path string) {
	t.Helper()
	a.up.Shows(t, path, "")
}

// The CRD server trusts the front proxy only. Without the core server it creates objects in
// namespaces that it knows, and refuses others with 503, because it cannot look them up.
func TestCoreAway(t *testing.T) {
	t.Parallel()
	a := newAlone(t)
	for _, name := range []string{"crd", "gateway", "core"} {
		a.start(t, name)
	}
	a.reached(t, "/api/v1/namespaces/default")
	a.reached(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	a.expectTrustInFrontProxyOnly(t)
	const group = "away.example.com"
	e2e.Define(t, e2e.DynamicClient(t, a.up.Config(t)), group)
	ask := func(method, path, body string, code int, text string) error {
		if got, answer := a.up.Do(t, method, "/apis/"+group+"/v1/namespaces/"+path, body); got != code || !strings.Contains(answer, text) {
			return fmt.Errorf("%s %s: %d %s, want %d and %q", method, path, got, answer, code, text)
		}
		return nil
	}
	create := func(namespace, name string, code int, text string) error {
		body, err := e2e.Widget(group, name).MarshalJSON()
		if err != nil {
			return err
		}
		return ask(http.MethodPost, namespace+"/widgets", string(body), code, text)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	const missing = `namespaces \"nowhere\" not found`
	must(create("default", "before", http.StatusCreated, ""))
	must(create("nowhere", "x", http.StatusNotFound, missing))

	a.kill9(t, "core")
	must(create("default", "while", http.StatusCreated, ""))
	must(create("nowhere", "x", http.StatusServiceUnavailable, `namespace \"nowhere\" cannot be looked up`))
	// A CRD server that starts now knows no namespace, webhook or policy: it serves reads
	// and refuses writes.
	a.kill9(t, "crd")
	a.start(t, "crd")
	a.reached(t, "/apis/"+group+"/v1/namespaces/default/widgets/while")
	must(create("default", "x", http.StatusServiceUnavailable, `namespace \"default\" cannot be looked up`))
	must(ask(http.MethodDelete, "default/widgets/while", "", http.StatusServiceUnavailable, "webhooks and policies are not known yet"))

	a.start(t, "core")
	e2e.Eventually(t, "creates pass again", func() error { return create("default", "after", http.StatusCreated, "") })
	e2e.Eventually(t, "a missing namespace is 404 again", func() error { return create("nowhere", "x", http.StatusNotFound, missing) })
}

// expectTrustInFrontProxyOnly checks that the CRD server accepts X-Remote headers from the
// front proxy's certificate, and no other client.
func (a *alone) expectTrustInFrontProxyOnly(t *testing.T) {
	t.Helper()
	list := "https://" + a.addresses["crd"] + "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, tc := range []struct {
		name string
		pair pki.Pair
		code int
	}{
		{"front proxy", a.files.FrontProxy, http.StatusOK},
		{"administrator", a.files.Admin, http.StatusUnauthorized},
		{"no certificate", pki.Pair{}, http.StatusUnauthorized},
	} {
		cfg := rest.AnonymousClientConfig(a.up.Config(t))
		cfg.TLSClientConfig.CertFile, cfg.TLSClientConfig.KeyFile = tc.pair.CertFile, tc.pair.KeyFile
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, list, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Remote-User", "jane")
		req.Header.Set("X-Remote-Group", "system:masters")
		if code, body := e2e.Send(t, e2e.HTTPClient(t, cfg), req); code != tc.code {
			t.Errorf("%s: %d %s, want %d", tc.name, code, body, tc.code)
		}
	}
}
