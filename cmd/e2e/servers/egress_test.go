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
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/cmd/e2e"
	"portico/internal/testing/issuertest"
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

// only checks that the proxy was asked for some addresses, which are sorted, and for no others.
func (p *egressProxy) only(t *testing.T, addresses ...string) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if asked := slices.Compact(slices.Sorted(slices.Values(p.asked))); !slices.Equal(asked, addresses) {
		t.Errorf("the proxy was asked for %v, want %v only", asked, addresses)
	}
}

// proxiedIssuer starts an issuer of tokens at an address that only the proxy of the control plane knows, and writes
// an AuthenticationConfiguration with it.
func proxiedIssuer(t *testing.T, file string) (i *issuertest.Issuer, listen string) {
	t.Helper()
	i, err := issuertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	listen, i.URL = strings.TrimPrefix(i.URL, "https://"), "https://example.com"
	e2e.WriteFile(t, file, fmt.Sprintf(`
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: %s, audiences: [portico], certificateAuthority: %q, egressSelectorType: controlplane}
  claimMappings: {username: {claim: sub, prefix: "oidc:"}}
`, i.URL, i.CA))
	return i, listen
}

// With an EgressSelectorConfiguration Backends are reached through the proxy of the cluster, which knows their
// names, webhooks by URL and an issuer of tokens through that of the control plane. None is reached directly, and dials
// are counted.
func TestEgress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const shop = "shop.cluster.invalid:80"
	listen := "127.0.0.1:" + e2e.FreePort(t, "127.0.0.1")
	cluster := startProxy(t, filepath.Join(dir, "cluster.sock"), map[string]string{shop: listen})
	issuers := filepath.Join(dir, "authentication.yaml")
	issuer, issuerAddress := proxiedIssuer(t, issuers)
	control := startProxy(t, filepath.Join(dir, "control.sock"), map[string]string{"example.com:443": issuerAddress})
	file := filepath.Join(dir, "egress.yaml")
	e2e.WriteFile(t, file, fmt.Sprintf(`
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- {name: cluster, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %s/cluster.sock}}}}
- {name: controlplane, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %[1]s/control.sock}}}}
- {name: etcd, connection: {proxyProtocol: Direct}}
`, dir))
	up := e2e.Install(t, filepath.Join(dir, "data"), "--egress-selector-config-file="+file, "--authentication-config="+issuers)

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

	e2e.Eventually(t, "a token of the issuer is accepted", func() error {
		review, err := up.Client(t).AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issuer.Token(nil)}}, metav1.CreateOptions{})
		if err == nil && review.Status.User.Username != "oidc:jane" {
			err = errors.New(review.Status.Error)
		}
		return err
	})

	cluster.only(t, shop)
	control.only(t, strings.TrimPrefix(hook.URL, "https://"), "example.com:443")
	const want = `apiserver_egress_dialer_dial_start_total{protocol="http_connect",transport="uds"}`
	if text := up.Metrics(t, "core"); !strings.Contains(text, want) {
		t.Errorf("%s is not among the metrics of core", want)
	}
}
