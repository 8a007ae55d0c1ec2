package up

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
	"portico/cmd/portico/server"
	"portico/resource/serve/socket"
)

// `up` passes the flags that its children have on to them, audit flags to the gateway only, and
// every flag that a child gets is one that it has.
func TestChildrenGetTheirFlags(t *testing.T) {
	cmd := New()
	if err := cmd.ParseFlags([]string{"--etcd-servers=https://a:2379,https://b:2379", "--etcd-cafile=a", "--max-requests-inflight=7", "--max-long-running-requests=8",
		"--audit-log-path=/x", "--access-log=-", "--profiling", "--discovery-grace=1m", "--tracing-config-file=t", "--v=2", "--feature-gates=CBORServingAndStorage=true",
		"--oidc-issuer-url=https://a", "--oidc-client-id=x", "--oidc-required-claim=a=1,2", "--oidc-required-claim=b=3",
		"--shutdown-delay-duration=7s"}); err != nil {
		t.Fatal(err)
	}
	s := &stack{flags: upFlags{all: cmd.Flags()}, addresses: gatewayAddresses{listen: []string{"127.0.0.1:6443", "[::1]:6443"}, hosts: []string{"127.0.0.1", "::1"}, port: "6443"}, etcd: server.EtcdFlags{Servers: []string{"https://a:2379", "https://b:2379"}}}
	var err error
	if s.dir, err = datadir.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer s.dir.Close()
	if s.files, err = pki.Ensure(pki.Config{Dir: s.dir.File("pki")}); err != nil {
		t.Fatal(err)
	}
	common := []string{"--etcd-servers=https://a:2379,https://b:2379", "--etcd-cafile=a", "--profiling=true", "--tracing-config-file=t", "--v=2", "--feature-gates=CBORServingAndStorage=true"}
	gateway := []string{"--max-requests-inflight=7", "--max-long-running-requests=8", "--audit-log-path=/x", "--access-log=-", "--discovery-grace=1m0s", "--oidc-required-claim=a=1,2", "--oidc-required-claim=b=3", "--shutdown-delay-duration=7s"}
	for name, args := range map[string][]string{"gateway": s.gatewayArgs(), "core": s.coreArgs(), "crd": s.crdArgs()} {
		child := map[string]func() *cobra.Command{"gateway": server.NewGateway, "core": server.NewCore, "crd": server.NewCRD}[name]()
		if err := child.ParseFlags(args); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for i, want := range append(slices.Clone(common), gateway...) {
			if slices.Contains(args, want) != (i < len(common) || name == "gateway") {
				t.Errorf("%s: %s in %q", name, want, args)
			}
		}
	}
	if got := s.flags.stopTimeoutOf("gateway"); got != stopTimeout+7*time.Second {
		t.Errorf("the gateway has %v to stop", got)
	}
	if err := New().ParseFlags([]string{"--max-requests-inflight=-1"}); err == nil || !strings.Contains(err.Error(), "--max-requests-inflight") {
		t.Errorf("a negative limit: %v", err)
	}
}

func TestFreeAddress(t *testing.T) {
	t.Parallel()
	host, port, err := freeAddress("127.0.0.1:0", false)
	if err != nil || host != "127.0.0.1" || port == "0" {
		t.Fatal(host, port, err)
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal("the address is not free:", err)
	}
	defer ln.Close()
	shared, err := socket.ListenTCP("127.0.0.1:0", true)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for _, busy := range []struct {
		address string
		share   bool
	}{{ln.Addr().String(), false}, {ln.Addr().String(), true}, {shared.Addr().String(), false}} {
		if _, _, err := freeAddress(busy.address, busy.share); err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("%+v: %v", busy, err)
		}
	}
	if _, _, err := freeAddress(shared.Addr().String(), true); err != nil {
		t.Error(err)
	}
}

func TestReachableHost(t *testing.T) {
	for host, want := range map[string]string{"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1", "::1": "::1", "10.0.0.1": "10.0.0.1", "api.example.com": "api.example.com"} {
		if got := reachableHost(host); got != want {
			t.Errorf("%q: got %q", host, got)
		}
	}
}
