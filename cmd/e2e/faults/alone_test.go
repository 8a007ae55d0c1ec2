package faults

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"portico/cmd/e2e"
	"portico/cmd/internal/embedetcd"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/testtools"
)

// alone is an installation without `up`: each process runs by itself with its
// documented flags, the servers behind the gateway over TLS, so that one can be
// away for as long as a test wishes.
type alone struct {
	sockets   string            // etcd's folder for its sockets
	up        *e2e.Installation // no `up`, but a client of the gateway like any
	files     *pki.Files
	etcd      string
	member    *embedetcd.Server   // behind etcd; a test may end it and start another
	addresses map[string]string   // host:port by subcommand
	extra     map[string][]string // further flags by subcommand
	processes map[string]*exec.Cmd
}

func newAlone(t *testing.T) *alone {
	t.Helper()
	dir := t.TempDir()
	a := &alone{up: &e2e.Installation{Dir: dir, Output: testtools.NewOutput()}, addresses: map[string]string{}, processes: map[string]*exec.Cmd{}}
	var err error
	if a.files, err = pki.Ensure(pki.Config{Dir: filepath.Join(dir, "pki")}); err != nil {
		t.Fatal(err)
	}
	// A short path: that of a socket may not be long.
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
	// After the processes have ended, whose cleanups come later and run first.
	t.Cleanup(func() {
		if t.Failed() {
			a.up.DumpLogs(t)
		}
	})
	return a
}

// startEtcd starts the member; one before it must have ended.
func (a *alone) startEtcd(t *testing.T) {
	t.Helper()
	member, err := embedetcd.Start(t.Context(), embedetcd.Config{Dir: filepath.Join(a.up.Dir, "etcd"), SocketDir: a.sockets, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	a.member, a.etcd = member, member.Endpoint()
}

// args are the flags of a process, none of them from `up`.
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

// start starts one process; it ends with the test at the latest.
func (a *alone) start(t *testing.T, name string) {
	t.Helper()
	p, err := e2e.Programs()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.OpenFile(filepath.Join(a.up.Dir, "logs", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.Portico, a.args(name)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.processes[name] = cmd
	t.Cleanup(func() {
		cmd.Process.Kill()
		// How it ended was our doing; after kill9 it has been waited for.
		_ = cmd.Wait()
	})
}

// kill9 ends a process for good.
func (a *alone) kill9(t *testing.T, name string) {
	t.Helper()
	if err := a.processes[name].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = a.processes[name].Wait()
}

// reached waits until the gateway answers path with 200. It asks without
// client-go, which itself waits seconds before it repeats what was unavailable.
func (a *alone) reached(t *testing.T, path string) {
	t.Helper()
	client := e2e.HTTPClient(t, a.up.Config(t))
	e2e.Eventually(t, path+" is reached", func() error {
		resp, err := client.Get(a.up.Endpoint + path)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// Without the core server the CRD server goes on: namespaces that it knows take
// new objects, and of others it says that it cannot tell.
func TestCoreAway(t *testing.T) {
	t.Parallel()
	a := newAlone(t)
	for _, name := range []string{"crd", "gateway", "core"} {
		a.start(t, name)
	}
	a.reached(t, "/api/v1/namespaces/default")
	a.reached(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	const group = "away.example.com"
	e2e.Define(t, e2e.DynamicClient(t, a.up.Config(t)), group)
	client := e2e.HTTPClient(t, a.up.Config(t))
	ask := func(method, path string, body []byte, code int, text string) error {
		req, err := http.NewRequestWithContext(t.Context(), method, a.up.Endpoint+"/apis/"+group+"/v1/namespaces/"+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		if got, answer := e2e.Send(t, client, req); got != code || !strings.Contains(answer, text) {
			return fmt.Errorf("%s %s: %d %s, want %d that says %q", method, path, got, answer, code, text)
		}
		return nil
	}
	create := func(namespace, name string, code int, text string) error {
		body, err := e2e.Widget(group, name).MarshalJSON()
		if err != nil {
			return err
		}
		return ask(http.MethodPost, namespace+"/widgets", body, code, text)
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
	// One that starts now knows no namespace, and nobody who has a say in writes:
	// it serves what it has, and refuses to change it unasked.
	a.kill9(t, "crd")
	a.start(t, "crd")
	a.reached(t, "/apis/"+group+"/v1/namespaces/default/widgets/while")
	must(create("default", "x", http.StatusServiceUnavailable, `namespace \"default\" cannot be looked up`))
	must(ask(http.MethodDelete, "default/widgets/while", nil, http.StatusServiceUnavailable, "webhooks and policies are not known yet"))

	a.start(t, "core")
	e2e.Eventually(t, "creates pass again", func() error { return create("default", "after", http.StatusCreated, "") })
	e2e.Eventually(t, "a missing namespace is known to be missing", func() error { return create("nowhere", "x", http.StatusNotFound, missing) })
}

// The CRD server takes the word of the front proxy alone about who asks.
func TestCRDServerBelievesTheFrontProxyOnly(t *testing.T) {
	t.Parallel()
	a := newAlone(t)
	a.start(t, "crd")
	list := "https://" + a.addresses["crd"] + "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, tc := range []struct {
		name string
		pair pki.Pair
		code int
	}{
		{"front proxy", a.files.FrontProxy, http.StatusOK},
		{"administrator", a.files.Admin, http.StatusUnauthorized},
		{"nobody", pki.Pair{}, http.StatusUnauthorized},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg, err := clientcmd.BuildConfigFromFlags("", a.up.Kubeconfig)
			if err != nil {
				t.Fatal(err)
			}
			cfg.TLSClientConfig.CertData, cfg.TLSClientConfig.KeyData = nil, nil
			cfg.TLSClientConfig.CertFile, cfg.TLSClientConfig.KeyFile = tc.pair.CertFile, tc.pair.KeyFile
			client := e2e.HTTPClient(t, cfg)
			e2e.Eventually(t, "an answer", func() error {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, list, nil)
				if err != nil {
					return err
				}
				req.Header.Set("X-Remote-User", "jane")
				req.Header.Set("X-Remote-Group", "system:masters")
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				var body bytes.Buffer
				if _, err := body.ReadFrom(resp.Body); err != nil || resp.StatusCode != tc.code {
					return fmt.Errorf("%d, want %d: %s (%w)", resp.StatusCode, tc.code, &body, err)
				}
				return nil
			})
		})
	}
}
