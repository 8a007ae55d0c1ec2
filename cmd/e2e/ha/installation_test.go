package ha

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
	"portico/internal/testing/await"
	"portico/internal/testing/etcdtest"
)

var (
	members  = []string{"etcd-0", "etcd-1", "etcd-2"}
	gateways = []string{"gateway-0", "gateway-1", "gateway-2"}
	backends = []string{"core-0", "core-1", "crd-0", "crd-1"}
)

// behind is what a process adds to its port: a relay listens on the port itself.
const behind = 10000

// installation is what deploy/machines/loopback.sh makes, with a relay in front of each address.
type installation struct {
	*e2e.Installation // Dir, and the load balancer as Endpoint
	network           string
	env               []string
	processes         map[string]*process
	etcd              *etcdClient
	// separated: one of the processes is separated from the others. To find out which process made a
	// connection takes milliseconds, which is done while one is only.
	separated atomic.Bool
	// startup is how long the servers took until all gateways reached them.
	startup time.Duration
}

// address returns the address at which others reach a process, as loopback.sh does.
func (in *installation) address(name string) string {
	kind, n := name[:len(name)-2], int(name[len(name)-1]-'0')
	host := map[string]int{"gateway": 1, "core": 4, "crd": 4, "etcd": 7}[kind] + n
	port := map[string]int{"gateway": 6443, "core": 7443, "crd": 7444, "etcd": 2379}[kind]
	return fmt.Sprintf("%s.%d:%d", in.network, host, port)
}

// listens returns the address of a process behind the relay at an address.
func listens(address string) string {
	addr := net.TCPAddrFromAddrPort(mustAddrPort(address))
	addr.Port += behind
	return addr.String()
}

// install starts the installation, in which a process serves on for delay after SIGTERM. balance starts
// a load balancer at an address.
func install(t *testing.T, delay time.Duration, balance func(in *installation, address string)) *installation {
	t.Helper()
	in := prepare(t, delay, balance)
	began := time.Now()
	in.start(t, append(backends, gateways...)...)
	for _, name := range gateways {
		in.serves(t, "https://"+in.address(name))
	}
	in.startup = time.Since(began)
	return in
}

// prepare is install without the start of gateways and servers.
func prepare(t *testing.T, delay time.Duration, balance func(in *installation, address string)) *installation {
	t.Helper()
	e2e.NeedsInstallation(t)
	programs := filepath.Dir(e2e.Program(t, testtools.Portico))
	e2e.Program(t, testtools.Etcd)
	e2e.Program(t, testtools.Etcdctl)
	// Addresses of its own, because several installations may run on the machine.
	in := &installation{network: fmt.Sprintf("127.%d.%d", 1+rand.IntN(250), rand.IntN(256)), processes: map[string]*process{}}
	dir := t.TempDir()
	balancer := in.network + ".100:6443"
	in.Installation = &e2e.Installation{Installation: &testtools.Installation{
		Dir: dir, Endpoint: "https://" + balancer, Kubeconfig: filepath.Join(dir, "pki/admin/kubeconfig"),
	}}
	in.env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "NETWORK="+in.network, "GATEWAY="+in.Endpoint,
		"DELAY="+delay.String(), fmt.Sprint("BEHIND=", behind))
	in.must(t, "init")
	if err := os.Mkdir(filepath.Join(dir, "logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			in.DumpLogs(t)
		}
	})
	names := slices.Concat(members, gateways, backends)
	for _, name := range names {
		p := &process{in: in, name: name, gate: &etcdtest.Gate{}}
		in.processes[name] = p
		t.Cleanup(p.kill)
	}
	for _, name := range names {
		in.relay(t, in.processes[name])
	}
	balance(in, balancer)
	in.start(t, members...)
	in.must(t, "users")
	in.etcd = in.connect(t)
	return in
}

// script returns a call of loopback.sh.
func (in *installation) script(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(e2e.Repository(), "deploy/machines/loopback.sh"), args...)
	cmd.Env = in.env
	return cmd
}

func (in *installation) must(t *testing.T, command string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	if out, err := in.script(ctx, command, in.Dir).CombinedOutput(); err != nil {
		t.Fatalf("loopback.sh %s: %v\n%s", command, err, out)
	}
}

// relay starts the relays in front of a process.
func (in *installation) relay(t *testing.T, p *process) {
	t.Helper()
	addresses := []string{in.address(p.name)}
	if strings.HasPrefix(p.name, "etcd") {
		addresses = append(addresses, strings.Replace(addresses[0], ":2379", ":2380", 1))
	}
	for _, address := range addresses {
		relay, err := etcdtest.Listen("tcp", address, listens(address), func(client, relay net.Addr) func() []*etcdtest.Gate {
			from := sync.OnceValue(func() *process { return in.dialed(client, relay) })
			return func() []*etcdtest.Gate {
				if !in.separated.Load() {
					return nil
				}
				gates := []*etcdtest.Gate{p.gate}
				if p := from(); p != nil {
					gates = append(gates, p.gate)
				}
				return gates
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(relay.Close)
	}
}

// dialed returns the process that made a connection; nil if it is none of the installation.
func (in *installation) dialed(client, relay net.Addr) *process {
	byPID, pids := map[int]*process{}, []int{}
	for _, p := range in.processes {
		if pid := int(p.pid.Load()); pid != 0 {
			byPID[pid], pids = p, append(pids, pid)
		}
	}
	pid, err := testtools.Dialed(client.String(), relay.String(), pids)
	if err != nil {
		panic(err) // the test cannot tell its processes apart
	}
	return byPID[pid]
}

func (in *installation) start(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := in.processes[name].start(); err != nil {
			t.Fatal(err)
		}
	}
}

// serves waits until a gateway reaches the servers behind it and takes writes.
func (in *installation) serves(t *testing.T, endpoint string) {
	t.Helper()
	client := e2e.HTTPClient(t, in.Config(t))
	for _, path := range []string{"/api/v1/namespaces/default", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/readyz/writes"} {
		e2e.Eventually(t, endpoint+path+" is answered", func() error {
			resp, body, err := e2e.Ask(t.Context(), client, http.MethodGet, endpoint+path, "")
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s %s", resp.Status, body)
			}
			return err
		})
	}
}
