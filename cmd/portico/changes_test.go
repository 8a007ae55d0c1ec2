package main

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/etcdtest"
)

// The changes to an installation that docs/operations.md describes: a user, the role of the user's group,
// and a second gateway by a file.
func TestCommonChanges(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	base := t.TempDir()
	up := e2e.Install(t, filepath.Join(base, "portico"))
	run := func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(e2e.Program(t, name), args...)
		cmd.Dir, cmd.Env = base, append(os.Environ(), "XDG_DATA_HOME="+base, "HOME="+base, "KUBECONFIG="+up.Kubeconfig)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	run(testtools.Portico, "certs", "kubeconfig", "--server="+up.Endpoint, "--user=jane", "--group=developers", "--out=jane.kubeconfig")
	jane := &e2e.Installation{Installation: &testtools.Installation{Dir: up.Dir, Endpoint: up.Endpoint, Kubeconfig: filepath.Join(base, "jane.kubeconfig")}}
	create := func() (int, string) {
		return jane.Do(t, http.MethodPost, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"of-jane"}}`)
	}
	if code, answer := create(); code != http.StatusForbidden || !strings.Contains(answer, "jane") {
		t.Fatalf("without a role: %d %s", code, answer)
	}
	run(testtools.Kubectl, "create", "clusterrolebinding", "developers", "--clusterrole=edit", "--group=developers")
	e2e.Eventually(t, "jane may create", func() error {
		if code, answer := create(); code != http.StatusCreated {
			return fmt.Errorf("%d %s", code, answer)
		}
		return nil
	})

	_, file, found := strings.Cut(documentsOf(t)["docs/operations.md"], "# second-gateway.yaml\n")
	file, _, _ = strings.Cut(file, "\n\n")
	if !found {
		t.Fatal("docs/operations.md has no second-gateway.yaml")
	}
	address := freePort(t)
	file = strings.NewReplacer("127.0.0.1:6444", address, "/var/lib/portico", up.Dir).Replace(regexp.MustCompile("(?m)^      ").ReplaceAllString(file, ""))
	e2e.WriteFile(t, filepath.Join(base, "second-gateway.yaml"), file)
	second := exec.Command(e2e.Program(t, testtools.Portico), "gateway", "--config=second-gateway.yaml")
	output := testtools.NewOutput()
	second.Dir, second.Stdout, second.Stderr = base, output, output
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = second.Process.Signal(syscall.SIGTERM) // unless it has ended
		if err := second.Wait(); err != nil {
			t.Errorf("the second gateway: %v\n%s", err, output)
		}
	})
	t.Cleanup(stop)
	client := e2e.HTTPClient(t, up.Config(t))
	e2e.Eventually(t, "the second gateway serves", func() error {
		resp, body, err := e2e.Ask(t.Context(), client, http.MethodGet, "https://"+address+"/api/v1/namespaces/default/configmaps/of-jane", "")
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s %s", resp.Status, body)
		}
		return err
	})
	expectGateways(t, up, strings.TrimPrefix(up.Endpoint, "https://"), address)
	stop()
	expectGateways(t, up, strings.TrimPrefix(up.Endpoint, "https://"))
}

// expectGateways expects gateways with addresses, a core and a CRD server in portico status.
func expectGateways(t *testing.T, up *e2e.Installation, addresses ...string) {
	t.Helper()
	slices.Sort(addresses)
	e2e.Eventually(t, fmt.Sprintf("portico status shows %d gateways", len(addresses)), func() error {
		s, err := statusOf(t, "--data-dir="+up.Dir)
		if err != nil {
			return err
		}
		var gateways []string
		count := map[string]int{}
		for _, p := range s.Installation.Processes {
			if count[p.Component]++; p.Component == "gateway" {
				gateways = append(gateways, p.Address)
			}
		}
		if slices.Sort(gateways); !slices.Equal(gateways, addresses) || count["core"] != 1 || count["crd"] != 1 {
			return fmt.Errorf("processes are %+v", s.Installation.Processes)
		}
		return nil
	})
}

// An installation on an etcd with TLS that checks the certificates of its clients.
func TestExternalEtcd(t *testing.T) {
	t.Parallel()
	e2e.NeedsInstallation(t)
	dir, address := t.TempDir(), freePort(t)
	ca, out := "--ca-dir="+filepath.Join(dir, "ca"), "--out="+dir
	for _, args := range [][]string{
		{"init", ca},
		{"issue", "server", ca, "--name=etcd", "--host=127.0.0.1", out},
		{"issue", "client", ca, "--user=client", out},
	} {
		if _, err := command(t, append([]string{"certs"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	etcdtest.Start(t, func(cfg *embed.Config) {
		client := url.URL{Scheme: "https", Host: address}
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		tls := &cfg.ClientTLSInfo
		tls.CertFile, tls.KeyFile, tls.TrustedCAFile, tls.ClientCertAuth = file("etcd.crt"), file("etcd.key"), file("client-ca.crt"), true
	})
	up := e2e.Install(t, file("data"), "--etcd-servers=https://"+address, "--etcd-cafile="+file("serving-ca.crt"), "--etcd-certfile="+file("client.crt"), "--etcd-keyfile="+file("client.key"))
	e2e.Create(t, up, "stored")
	e2e.Expect(t, up, "stored")
	if _, err := os.Stat(file("data/etcd")); !os.IsNotExist(err) {
		t.Errorf("up has an etcd of its own: %v", err)
	}
	made, err := command(t, "backup", file("backup"), "--etcd-servers=https://"+address, "--etcd-cafile="+file("serving-ca.crt"), "--etcd-certfile="+file("client.crt"), "--etcd-keyfile="+file("client.key"), "--data-dir="+file("data"))
	if err != nil || strings.Contains(made, "no keys") {
		t.Errorf("backup: %v\n%s", err, made)
	}
	if verified, err := command(t, "backup", "verify", file("backup")); err != nil {
		t.Errorf("backup verify: %v\n%s", err, verified)
	}
}

// freePort returns an address of this machine that nothing listens on.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
