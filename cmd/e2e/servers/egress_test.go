package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"portico/cmd/e2e"
)

// egressProxy is a proxy for CONNECT on a unix socket. It connects to addresses, or to what hosts has for them.
type egressProxy struct {
	hosts map[string]string

	mu    sync.Mutex
	asked []string
}

// startProxy starts a proxy on a socket; it ends with the test.
func startProxy(t *testing.T, socket string, hosts map[string]string) *egressProxy {
	t.Helper()
	p := &egressProxy{hosts: hosts}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(ctx, conn) })
		}
	})
	t.Cleanup(func() {
		cancel()
		l.Close()
		running.Wait()
	})
	return p
}

// serve connects a client with what it asks for, until one of them or ctx ends.
func (p *egressProxy) serve(ctx context.Context, client net.Conn) {
	defer client.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	request, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil || request.Method != http.MethodConnect {
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, request.RequestURI)
	p.mu.Unlock()
	address := request.RequestURI
	if real, ok := p.hosts[address]; ok {
		address = real
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		fmt.Fprint(client, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		return
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { server.Close() })()
	fmt.Fprint(client, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(server, client)
		server.Close()
	}()
	_, _ = io.Copy(client, server)
}

// only checks that the proxy was asked for an address, and for no other one.
func (p *egressProxy) only(t *testing.T, address string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if asked := slices.Compact(slices.Clone(p.asked)); !slices.Equal(asked, []string{address}) {
		t.Errorf("the proxy was asked for %v, want %s only", asked, address)
	}
}

// With an EgressSelectorConfiguration Backends are reached through the proxy of the cluster, which knows their
// names, and webhooks by URL through that of the control plane. Neither is reached directly, and dials are counted.
func TestEgress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const shop = "shop.cluster.invalid:80"
	listen := "127.0.0.1:" + e2e.FreePort(t, "127.0.0.1")
	cluster := startProxy(t, filepath.Join(dir, "cluster.sock"), map[string]string{shop: listen})
	control := startProxy(t, filepath.Join(dir, "control.sock"), nil)
	file := filepath.Join(dir, "egress.yaml")
	e2e.WriteFile(t, file, fmt.Sprintf(`
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %s/cluster.sock}}}}
- {name: controlplane, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %[1]s/control.sock}}}}
- {name: etcd, connection: {proxyProtocol: Direct}}
`, dir))
	up := e2e.Install(t, filepath.Join(dir, "data"), "--egress-selector-config-file="+file)

	s := &restServer{up: up, listen: listen, prefix: "/api/v1"}
	t.Cleanup(s.kill)
	s.start(t)
	manifest := filepath.Join(dir, "backend.yaml")
	e2e.WriteFile(t, manifest, `
apiVersion: gateway.portico.dev/v1alpha1
kind: Backend
metadata: {name: shop}
spec:
  endpoints: [{url: "http://`+shop+`"}]
  rest: {group: shop.example.com, version: v1, openAPIPath: /api/v1/openapi.json}
`)
	up.MustKubectl(t, "apply", "-f", manifest)
	up.Shows(t, "/apis/gateway.portico.dev/v1alpha1/backends/shop", `"type":"Available","status":"True"`)

	hook := e2e.StartWebhook(t, func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"asked"}}
	})
	e2e.CallWebhook(t, up, "ask", hook, `[""]`, `["configmaps"]`, `{}`)
	e2e.Eventually(t, "the webhook is asked through the proxy", func() error {
		out, err := up.Kubectl(t, "create", "configmap", "x", "--dry-run=server")
		if err == nil && !strings.Contains(out, "asked") {
			err = errors.New(out)
		}
		return err
	})

	cluster.only(t, shop)
	control.only(t, strings.TrimPrefix(hook.URL, "https://"))
	const want = `apiserver_egress_dialer_dial_start_total{protocol="http_connect",transport="uds"}`
	if text := up.Metrics(t, "core"); !strings.Contains(text, want) {
		t.Errorf("%s is not among the metrics of core", want)
	}
}
