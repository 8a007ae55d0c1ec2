package faults

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"portico/apiservice/backend"
	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/testtools"
)

// fleet is an installation of separate processes, each with its own address and a folder with
// the files that `portico certs issue` has written for it. Three CRD servers on the same etcd
// are the endpoints of one Backend.
type fleet struct {
	dir, caDir string
	etcd       *e2e.EtcdProcess
	up         *e2e.Installation // without Cmd: the gateway and the administrator's kubeconfig
	gateway    *node
	core       *node
	crds       []*node
}

// fleetBackend is the Backend of the CRD servers.
const fleetBackend = "crds"

// fleetPolicy shortens the intervals of health checks and ejections. The health checks do not
// depend on etcd, so that servers get requests for objects in memory while etcd is away.
const fleetPolicy = `{"spec":{
	"healthCheck":{"path":"/readyz?exclude=etcd&exclude=etcd-readiness","interval":"500ms","timeout":"1s"},
	"outlierDetection":{"baseEjectionTime":"2s","maxEjectionTime":"4s"}}}`

// node is one process of the fleet.
type node struct {
	fleet         *fleet
	name, command string
	host, port    string
	dir           string
	args          []string
	cmd           *exec.Cmd
}

func (n *node) url() string { return "https://" + net.JoinHostPort(n.host, n.port) }

// startFleet starts the processes, registers the CRD servers and returns when all three are
// healthy.
func startFleet(t *testing.T) *fleet {
	t.Helper()
	dir := t.TempDir()
	f := &fleet{dir: dir, caDir: filepath.Join(dir, "authorities"), etcd: e2e.StartEtcd(t)}
	f.up = &e2e.Installation{Installation: &testtools.Installation{Dir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig")}}
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	// Runs after the cleanup of the processes, which is registered later.
	t.Cleanup(func() {
		if t.Failed() {
			f.up.DumpLogs(t)
		}
	})
	t.Cleanup(f.stop)
	f.portico(t, "certs", "init", "--ca-dir="+f.caDir)
	f.gateway = f.node(t, "gateway", "gateway", "127.0.0.1")
	f.up.Endpoint = f.gateway.url()
	f.core = f.node(t, "core", "core", "127.0.0.5")
	for i, host := range []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"} {
		f.crds = append(f.crds, f.node(t, fmt.Sprint("crd-", i+1), "crd", host))
	}
	f.administrator(t)
	for _, n := range append([]*node{f.core, f.gateway}, f.crds...) {
		n.complete(t)
		n.start(t)
	}
	f.register(t)
	return f
}

// node creates the folder of a process, with the serving certificate of its address.
func (f *fleet) node(t *testing.T, name, command, host string) *node {
	t.Helper()
	n := &node{fleet: f, name: name, command: command, host: host, port: e2e.FreePort(t, host), dir: filepath.Join(f.dir, name)}
	n.certificate(t)
	return n
}

// certificate issues the serving certificate of the process.
func (n *node) certificate(t *testing.T, more ...string) {
	t.Helper()
	n.fleet.portico(t, append([]string{"certs", "issue", "server", "--ca-dir=" + n.fleet.caDir, "--out=" + n.dir, "--name=server", "--host=" + n.host}, more...)...)
}

// expire replaces the serving certificate by an expired one.
func (n *node) expire(t *testing.T) {
	t.Helper()
	if _, err := pki.Issue(n.fleet.caDir, n.dir, pki.Request{
		By: pki.ServingAuthority, Name: "server", User: "server", Hosts: []string{n.host}, ValidFor: -time.Hour, Replace: true,
	}); err != nil {
		t.Fatal(err)
	}
}

func (n *node) file(name string) string { return filepath.Join(n.dir, name) }

// complete issues the client certificates of the process, and sets its flags.
func (n *node) complete(t *testing.T) {
	t.Helper()
	f := n.fleet
	n.args = []string{
		n.command, "--listen=" + net.JoinHostPort(n.host, n.port), "--etcd-servers=" + f.etcd.Endpoint(),
		"--tls-cert-file=" + n.file("server.crt"), "--tls-private-key-file=" + n.file("server.key"),
		"--requestheader-client-ca-file=" + n.file("front-proxy-ca.crt"), "--requestheader-allowed-names=" + pki.FrontProxyName,
	}
	if n.command == "gateway" {
		f.portico(t, "certs", "issue", "front-proxy", "--ca-dir="+f.caDir, "--out="+n.dir)
		n.args = append(n.args, "--client-ca-file="+n.file("client-ca.crt"),
			"--proxy-client-cert-file="+n.file("front-proxy-client.crt"), "--proxy-client-key-file="+n.file("front-proxy-client.key"),
			"--backend=core="+f.core.url(), "--backend-ca-file="+n.file("serving-ca.crt"))
		return
	}
	f.portico(t, "certs", "issue", "client", "--ca-dir="+f.caDir, "--out="+n.dir, "--name=client", "--user=system:portico:"+n.command)
	n.args = append(n.args, "--shutdown-delay-duration=2s", "--gateway="+f.gateway.url(), "--gateway-ca-file="+n.file("serving-ca.crt"),
		"--gateway-cert-file="+n.file("client.crt"), "--gateway-key-file="+n.file("client.key"))
}

// start starts the process.
func (n *node) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(n.fleet.dir, "logs", n.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(e2e.Program(t, testtools.Portico), n.args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.cmd = cmd
}

// stop kills every process that runs.
func (f *fleet) stop() {
	for _, n := range append([]*node{f.core, f.gateway}, f.crds...) {
		if n != nil && n.cmd != nil && n.cmd.ProcessState == nil {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait() // its error is that it was killed
		}
	}
}

func (n *node) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// kill ends the process by SIGKILL.
func (n *node) kill(t *testing.T) {
	t.Helper()
	n.signal(t, syscall.SIGKILL)
	_ = n.cmd.Wait() // its error is that it was killed
}

// terminate ends the process by SIGTERM and waits for its end.
func (n *node) terminate(t *testing.T) {
	t.Helper()
	n.signal(t, syscall.SIGTERM)
	if err := n.cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v", n.name, err)
	}
}

// portico runs a command of portico as the administrator and returns its output.
func (f *fleet) portico(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), e2e.Program(t, testtools.Portico), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+f.up.Kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("portico %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (f *fleet) administrator(t *testing.T) {
	t.Helper()
	dir := filepath.Join(f.dir, "admin")
	f.portico(t, "certs", "issue", "client", "--ca-dir="+f.caDir, "--out="+dir, "--name=admin", "--user=admin", "--group=system:masters")
	pair := pki.Pair{CertFile: filepath.Join(dir, "admin.crt"), KeyFile: filepath.Join(dir, "admin.key")}
	if err := pki.WriteKubeconfig(f.up.Kubeconfig, f.up.Endpoint, filepath.Join(dir, "serving-ca.crt"), pair); err != nil {
		t.Fatal(err)
	}
}

// register registers the CRD servers.
func (f *fleet) register(t *testing.T) {
	t.Helper()
	f.up.Shows(t, "/api/v1/namespaces/default", "")
	args := []string{"register", fleetBackend, "--all-groups", "--ca-file=" + f.gateway.file("serving-ca.crt"), "--wait=60s"}
	for _, n := range f.crds {
		args = append(args, "--url="+n.url())
	}
	t.Logf("%s", f.portico(t, args...))
	f.up.MustKubectl(t, "patch", "backend", fleetBackend, "--type=merge", "-p", fleetPolicy)
	for _, n := range f.crds {
		f.state(t, n, backend.EndpointHealthy)
	}
}

// endpoint returns the status of a node in the Backend's status.
func (f *fleet) endpoint(t *testing.T, n *node) (*backend.EndpointStatus, error) {
	t.Helper()
	code, body := f.up.Do(t, http.MethodGet, "/apis/gateway.portico.dev/v1alpha1/backends/"+fleetBackend, "")
	var b backend.Backend
	if err := json.Unmarshal([]byte(body), &b); err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("%d %s: %w", code, body, err)
	}
	for i := range b.Status.Endpoints {
		if b.Status.Endpoints[i].URL == n.url() {
			return &b.Status.Endpoints[i], nil
		}
	}
	return nil, fmt.Errorf("the status of the Backend lacks %s: %s", n.url(), body)
}

// state waits until a node is in one of some states in the Backend's status, with a reason
// unless it is healthy.
func (f *fleet) state(t *testing.T, n *node, want ...backend.EndpointState) *backend.EndpointStatus {
	t.Helper()
	var got *backend.EndpointStatus
	e2e.Eventually(t, fmt.Sprintf("%s is %v", n.name, want), func() (err error) {
		if got, err = f.endpoint(t, n); err != nil {
			return err
		}
		if !slices.Contains(want, got.State) {
			return fmt.Errorf("it is %s (%s)", got.State, got.LastError)
		}
		if got.State != backend.EndpointHealthy && got.LastError == "" {
			return fmt.Errorf("it is %s without an error", got.State)
		}
		return nil
	})
	return got
}
