package faults

import (
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/e2e/etcdprocess"
	"portico/cmd/internal/pki"
	"portico/cmd/internal/testtools"
)

// cluster is an installation without `up`: its processes do not restart by themselves. They
// run with documented flags only, the servers behind the gateway on TLS.
type cluster struct {
	up    *e2e.Installation // without Cmd: the gateway and the administrator's kubeconfig
	etcd  *etcdprocess.Process
	files *pki.Files
	nodes map[string]*node
	extra map[string][]string // further flags by subcommand
}

// node is one process of a cluster.
type node struct {
	cluster *cluster
	name    string // a subcommand, with a suffix if several run it
	command string
	address string
	serving pki.Pair
	cmd     *exec.Cmd
}

// newCluster starts an etcd and prepares a gateway and servers, none of which runs yet.
func newCluster(t *testing.T, servers ...string) *cluster {
	t.Helper()
	dir := t.TempDir()
	c := &cluster{up: &e2e.Installation{Installation: &testtools.Installation{Dir: dir}}, etcd: etcdprocess.Start(t), nodes: map[string]*node{}, extra: map[string][]string{}}
	var err error
	if c.files, err = pki.Ensure(pki.Config{Dir: filepath.Join(dir, "pki")}); err != nil {
		t.Fatal(err)
	}
	// Runs after the cleanups of the processes, which are registered later.
	t.Cleanup(func() {
		if t.Failed() {
			c.up.DumpLogs(t)
		}
	})
	for _, name := range append(servers, "gateway") {
		c.add(t, name)
	}
	c.connect(t, filepath.Join(dir, "kubeconfig"))
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	return c
}

// add prepares a process with a free port, which is killed at the end of the test.
func (a *cluster) add(t *testing.T, name string) {
	t.Helper()
	command, _, _ := strings.Cut(name, "-")
	n := &node{cluster: a, name: name, command: command, serving: a.files.Serving, address: net.JoinHostPort("127.0.0.1", e2e.FreePort(t, "127.0.0.1"))}
	a.nodes[name] = n
	t.Cleanup(func() {
		if n.cmd != nil && n.cmd.ProcessState == nil {
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait() // its error is that it was killed
		}
	})
}

// connect writes the administrator's kubeconfig for the gateway.
func (a *cluster) connect(t *testing.T, kubeconfig string) {
	t.Helper()
	a.up.Endpoint, a.up.Kubeconfig = a.nodes["gateway"].url(), kubeconfig
	if err := pki.WriteKubeconfig(kubeconfig, a.up.Endpoint, a.files.ServingCAFile, a.files.Admin); err != nil {
		t.Fatal(err)
	}
}

func (n *node) url() string { return "https://" + n.address }

// args returns the command line of the process.
func (n *node) args() []string {
	c := n.cluster
	args := append([]string{
		n.command, "--listen=" + n.address, "--etcd-servers=" + c.etcd.Endpoint(),
		"--tls-cert-file=" + n.serving.CertFile, "--tls-private-key-file=" + n.serving.KeyFile,
		"--requestheader-client-ca-file=" + c.files.FrontProxyCAFile, "--requestheader-allowed-names=" + pki.FrontProxyName,
	}, c.extra[n.command]...)
	if n.command != "gateway" {
		own := map[string]pki.Pair{"core": c.files.Core, "crd": c.files.CRD}[n.command]
		return append(args, "--gateway="+c.up.Endpoint, "--gateway-ca-file="+c.files.ServingCAFile,
			"--gateway-cert-file="+own.CertFile, "--gateway-key-file="+own.KeyFile)
	}
	for _, command := range []string{"core", "crd"} {
		if c.nodes[command] != nil { // without it a test registers them
			args = append(args, "--backend="+command+"="+strings.Join(c.urls(command), ","))
		}
	}
	return append(args, "--backend-ca-file="+c.files.ServingCAFile, "--client-ca-file="+c.files.ClientCAFile,
		"--proxy-client-cert-file="+c.files.FrontProxy.CertFile, "--proxy-client-key-file="+c.files.FrontProxy.KeyFile)
}

// urls returns the URLs of the processes that run a subcommand.
func (a *cluster) urls(command string) (urls []string) {
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		if n := a.nodes[name]; n.command == command {
			urls = append(urls, n.url())
		}
	}
	return urls
}

// start starts the process.
func (n *node) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(n.cluster.up.Dir, "logs", n.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(e2e.Program(t, testtools.Portico), n.args()...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.cmd = cmd
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

// terminate ends the process by SIGTERM.
func (n *node) terminate(t *testing.T) {
	t.Helper()
	n.signal(t, syscall.SIGTERM)
	if err := n.cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v", n.name, err)
	}
}

func (a *cluster) start(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		a.nodes[name].start(t)
	}
}

func (a *cluster) kill9(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		a.nodes[name].kill(t)
	}
}

// reached waits until the gateway responds to a GET of path with 200.
func (a *cluster) reached(t *testing.T, path string) {
	t.Helper()
	a.up.Shows(t, path, "")
}
