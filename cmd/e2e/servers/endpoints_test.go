package servers

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/pki"
)

// clusterService is a Service with two named ports, and with EndpointSlices that the test
// writes.
const clusterService = `apiVersion: v1
kind: Service
metadata:
  name: api
  namespace: wardle
spec:
  ports:
  - name: other
    port: 9
  - name: https
    port: 9443
`

const flundersPath = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders"

// Requests reach a server that is registered by a Service with EndpointSlices, under the name
// and the port of the Service. When an endpoint dies the other one gets all requests. The
// gateway never connects to an endpoint that is not ready or to another port.
//
// The servers listen on an address that is not loopback, which an EndpointSlice may not name.
func TestServiceEndpoints(t *testing.T) {
	t.Parallel()
	e := newEndpointsTest(t)
	e.sample.Available(t, "False (EndpointsNotFound)")
	first, second := e.server(t), e.server(t)

	first.Start(t)
	e.slice(t, "first", first.Port, true)
	e.sample.Available(t, "True")
	e.slice(t, "unready", e.trapPort, false)
	e2e.Eventually(t, "the server admits writes", func() error {
		_, err := e.up.Kubectl(t, "apply", "-f", filepath.Join(e2e.Repository(), "deploy/samples/sample-apiserver/objects"))
		return err
	})
	e.serves(t, "by the first endpoint")

	second.Start(t)
	second.Serves(t)
	e.slice(t, "second", second.Port, true)
	e.serves(t, "by two endpoints")
	first.Kill()
	e.serves(t, "after the first endpoint died")

	// Both not ready; the second one runs.
	e.slice(t, "second", second.Port, false)
	e.slice(t, "first", first.Port, false)
	e.sample.Available(t, "False (MissingEndpoints)")
	second.Serves(t)
	code, body := e2e.Get(t, e.client, e.up.Endpoint+flundersPath, "")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "MissingEndpoints") {
		t.Errorf("with no endpoint ready: %d %s", code, body)
	}
	e.slice(t, "second", second.Port, true)
	e.sample.Available(t, "True")
	e.serves(t, "by the endpoint that is ready again")
	if n := e.trapped.Load(); n > 0 {
		t.Errorf("%d connections to an endpoint that is not ready or to another port", n)
	}
}

type endpointsTest struct {
	up       *e2e.Installation
	client   *http.Client
	sample   *e2e.SampleServer // registered; it does not run
	host     string
	files    *pki.Files // of the servers
	trapPort string     // where nothing may connect
	trapped  atomic.Int64
}

func newEndpointsTest(t *testing.T) *endpointsTest {
	t.Helper()
	e := &endpointsTest{host: e2e.RoutableAddress(t)}
	e.up = e2e.Install(t, t.TempDir())
	e.client = e2e.HTTPClient(t, e.up.Config(t))
	// The certificate has the name of the Service only.
	var err error
	if e.files, err = pki.Ensure(pki.Config{Dir: filepath.Join(t.TempDir(), "pki"), Hosts: []string{"api.wardle.svc"}}); err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(e.files.ServingCAFile)
	if err != nil {
		t.Fatal(err)
	}
	e.sample = e2e.RegisterSample(t, e.up, func(file, text string) string {
		switch file {
		case "service.yaml":
			return clusterService
		case "apiservice.yaml":
			return strings.ReplaceAll(text, "insecureSkipTLSVerify: true", "caBundle: "+base64.StdEncoding.EncodeToString(ca))
		}
		return text
	})
	e.trap(t)
	return e
}

// trap counts the connections to trapPort.
func (e *endpointsTest) trap(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", net.JoinHostPort(e.host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	_, e.trapPort, _ = net.SplitHostPort(ln.Addr().String())
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			e.trapped.Add(1)
			conn.Close()
		}
	}()
}

// server returns a server for the routable address.
func (e *endpointsTest) server(t *testing.T) *e2e.SampleServer {
	t.Helper()
	s := &e2e.SampleServer{
		Up: e.up, Dir: t.TempDir(), Host: e.host, Port: e2e.FreePort(t, e.host), Kubeconfig: e.sample.Kubeconfig,
		Args: []string{"--tls-cert-file=" + e.files.Serving.CertFile, "--tls-private-key-file=" + e.files.Serving.KeyFile},
	}
	t.Cleanup(s.Kill)
	return s
}

// slice applies an EndpointSlice with one endpoint, host:port.
func (e *endpointsTest) slice(t *testing.T, name, port string, ready bool) {
	t.Helper()
	family := "IPv4"
	if strings.Contains(e.host, ":") {
		family = "IPv6"
	}
	e.sample.Apply(t, name, fmt.Sprintf(`{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: %s,
 metadata: {name: %s, namespace: wardle, labels: {kubernetes.io/service-name: api}},
 ports: [{name: other, port: %s}, {name: https, port: %s}], endpoints: [{addresses: [%q], conditions: {ready: %t}}]}`,
		family, name, e.trapPort, port, e.host, ready))
}

// serves checks 20 responses and the condition of the APIService.
func (e *endpointsTest) serves(t *testing.T, when string) {
	t.Helper()
	for range 20 {
		code, body := e2e.Get(t, e.client, e.up.Endpoint+flundersPath, "")
		if code != http.StatusOK || !strings.Contains(body, `"my-first-flunder"`) {
			t.Fatalf("%s: %d %s", when, code, body)
		}
	}
	if out := e.up.MustKubectl(t, "get", "apiservice", "v1alpha1.wardle.example.com", "--no-headers"); !strings.Contains(out, "True") {
		t.Errorf("%s: %s", when, out)
	}
}
