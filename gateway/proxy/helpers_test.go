package proxy

import (
	"bufio"
	"context"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/upstream"
	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/serve/filter"
)

// Paths of requests with and without a deadline; they use different protocols over TLS.
const (
	shortPath = "/apis/g.example.com/v1/things"
	watchPath = shortPath + "?watch=true"
	// longPath is long-running with any method.
	longPath = "/apis/g.example.com/v1/namespaces/a/things/x/proxy/echo"
	execPath = "/api/v1/namespaces/a/pods/b/exec"
)

// startTLS starts a server that speaks HTTP/1.1 and HTTP/2, and returns how it is verified.
func startTLS(t testing.TB, handler http.HandlerFunc) (*httptest.Server, upstream.Trust) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server, trustOf(server)
}

// trustOf returns how a server is verified.
func trustOf(server *httptest.Server) upstream.Trust {
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return upstream.Trust{Roots: func() *x509.CertPool { return pool }, ServerName: "example.com"}
}

// closedPort returns an address that refuses connections.
func closedPort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// upstreamTo returns the reverse proxies to the endpoints of a server; change is applied to
// its configuration.
func upstreamTo(t testing.TB, trust upstream.Trust, addresses []string, change ...func(*upstream.Config)) *Upstream {
	t.Helper()
	cfg := upstream.Config{
		Base: &url.URL{Scheme: "https", Host: "api.ns.svc:443"}, Endpoints: upstream.At(addresses...), Trust: trust,
		Policy: upstream.NewPolicy(&backend.Spec{}), Via: upstream.NewVia(),
	}
	cfg.Policy.Timeouts.Connect = time.Minute // many handshakes at once take a busy machine long
	for _, f := range change {
		f(&cfg)
	}
	up := NewUpstream(cfg, NewMaker(slog.New(slog.DiscardHandler)))
	t.Cleanup(up.Close)
	return up
}

// upstreamOnSocket starts a server on a unix socket, and returns the reverse proxies to it.
func upstreamOnSocket(t *testing.T, handler http.Handler) *Upstream {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return upstreamTo(t, upstream.Trust{Plain: true}, []string{l.Addr().String()}, func(c *upstream.Config) {
		c.Base.Scheme, c.Endpoints[0].Network = "http", "unix"
	})
}

// routeTo returns an available route to a server.
func routeTo(up *Upstream) *Route {
	return &Route{Name: "v1.test", Backend: "test", Upstream: up, Condition: apiservice.Passed(), traffic: NewTraffic()}
}

// along sends requests along a route.
func along(rt *Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { (&Proxy{}).Send(w, r, rt) }
}

// asAlice gives requests their action, and the user alice.
func asAlice(next http.Handler) http.HandlerFunc { return asUser(alice(), next) }

// asUser gives requests their action and a user.
func asUser(user *resource.User, next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = user
		next.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}
}

func alice() *resource.User {
	return &resource.User{
		Name: "alice", UID: "42", Groups: []string{"dev", "system:authenticated"},
		Extra: map[string][]string{"example.com/scope": {"a", "b"}},
	}
}

// front is a gateway's proxy before one server, for the user alice.
type front struct {
	*httptest.Server
	up     *Upstream
	broken atomic.Int32 // how often an endpoint was suspected
}

// startFront starts a front before a TLS server.
func startFront(t *testing.T, behind http.HandlerFunc) *front {
	t.Helper()
	server, trust := startTLS(t, behind)
	return frontOf(t, trust, server.Listener.Addr().String())
}

// frontOf starts a front before the server at an address.
func frontOf(t *testing.T, trust upstream.Trust, address string) *front {
	t.Helper()
	f := &front{}
	f.up = upstreamTo(t, trust, []string{address}, func(c *upstream.Config) { c.Broken = func(string) { f.broken.Add(1) } })
	f.Server = httptest.NewServer(asAlice(along(routeTo(f.up))))
	t.Cleanup(f.Server.Close)
	return f
}

// do sends a request and follows no redirect.
func (f *front) do(t *testing.T, method, path string, body io.Reader, header http.Header) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, f.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// get sends a GET without a header of its own.
func (f *front) get(t *testing.T, path string) *http.Response {
	t.Helper()
	return f.do(t, "GET", path, nil, nil)
}

// raw sends a request as it is written, with line feeds for line breaks.
func (f *front) raw(t *testing.T, request string) *http.Response {
	t.Helper()
	conn, err := net.Dial("tcp", f.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprint(conn, strings.ReplaceAll(request, "\n", "\r\n"))
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// janeAuthenticator authenticates every request as the user jane.
type janeAuthenticator struct{}

func (janeAuthenticator) Authenticate(*http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: "jane", Groups: []string{"dev"}}, true, nil
}

// newChain returns a gateway's filters before handler, for the user jane.
func newChain(t testing.TB, handler http.Handler, change ...func(*filter.Config)) http.Handler {
	t.Helper()
	cfg := filter.Config{
		Authenticator: janeAuthenticator{}, Logger: slog.New(slog.DiscardHandler), Handler: handler,
		SentOn: func(*resource.Action) bool { return true },
	}
	for _, f := range change {
		f(&cfg)
	}
	chain, err := filter.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return chain
}

// startChain starts a gateway's filters and proxy over TLS, before a server on a socket.
func startChain(t *testing.T, behind http.HandlerFunc, change ...func(*filter.Config)) *httptest.Server {
	t.Helper()
	gateway, _ := startTLS(t, newChain(t, along(routeTo(upstreamOnSocket(t, behind))), change...).ServeHTTP)
	return gateway
}

// statusOf decodes the Status in an answer.
func statusOf(t *testing.T, res *http.Response) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatalf("the answer (%d) has no Status: %v", res.StatusCode, err)
	}
	return s
}

// flush sends what has been written of an answer.
func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// gathered returns the values of all series, and the counts of histograms, by name and
// labels.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			out[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}
