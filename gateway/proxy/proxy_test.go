package proxy

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice"
	"portico/apiservice/backend"
	"portico/gateway/upstream"
	"portico/resource"
)

// front is a gateway's proxy before one TLS server.
type front struct {
	*httptest.Server
	broken atomic.Int32 // how often the server was suspected
	up     *Upstream
}

func alice() *resource.User {
	return &resource.User{
		Name: "alice", UID: "42", Groups: []string{"dev", "system:authenticated"},
		Extra: map[string][]string{"example.com/scope": {"a", "b"}},
	}
}

// startFront serves behind through the proxy, as the user alice.
func startFront(t *testing.T, behind http.HandlerFunc) *front {
	t.Helper()
	server := httptest.NewUnstartedServer(behind)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return frontOf(t, server.Listener.Addr().String(), upstream.Trust{Roots: fixed(pool), ServerName: "example.com"})
}

// fixed are roots that stay as they are.
func fixed(pool *x509.CertPool) func() *x509.CertPool {
	return func() *x509.CertPool { return pool }
}

func frontOf(t *testing.T, address string, how upstream.Trust) *front {
	t.Helper()
	f := &front{}
	base := &url.URL{Scheme: "https", Host: "api.ns.svc:443"}
	endpoint := upstream.At(address)[0]
	if how.Plain {
		base.Scheme, endpoint.Network = "http", "unix"
	}
	policy := upstream.NewPolicy(&backend.Spec{})
	policy.Timeouts.Connect = time.Minute // many handshakes at once take a busy machine long
	f.up = NewUpstream(upstream.Config{
		Base: base, Endpoints: []upstream.Endpoint{endpoint}, Trust: how, Policy: policy, Via: upstream.NewVia(),
		Broken: func(string) { f.broken.Add(1) },
	}, NewMaker(slog.New(slog.DiscardHandler)))
	rt := &Route{Name: "v1.test", Upstream: f.up, Condition: apiservice.Passed()}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = alice()
		(&Proxy{}).Send(w, r.WithContext(resource.WithAction(r.Context(), act)), rt)
	}))
	t.Cleanup(func() { f.Server.Close(); f.up.Close() })
	return f
}

func (f *front) do(t *testing.T, method, path string, body io.Reader, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, f.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	res, err := http.DefaultTransport.RoundTrip(req) // follows no redirect
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func statusOf(t *testing.T, res *http.Response) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.NewDecoder(res.Body).Decode(&s); err != nil {
		t.Fatalf("the answer (%d) is no Status: %v", res.StatusCode, err)
	}
	return s
}

const watchPath = "/apis/g.example.com/v1/things?watch=true"

// The server gets the user in front-proxy headers, and neither credentials nor identity
// headers of the client.
func TestProxyIdentity(t *testing.T) {
	for _, path := range []string{"/apis/g.example.com/v1/things", watchPath} { // HTTP/1.1 and HTTP/2
		var got http.Header
		f := startFront(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
		res := f.do(t, "GET", path, nil, http.Header{
			"X-Remote-User": {"root"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"0"}, "X-Remote-Extra-Evil": {"x"},
			"X_remote_user": {"root"}, "Authorization": {"Bearer secret"},
			"Impersonate-User": {"root"}, "Impersonate-Group": {"system:masters"}, "Impersonate-Extra-Evil": {"x"}, "Impersonate-Uid": {"0"},
			"Connection": {"X-Remote-User, X-Remote-Group"}, "Accept-Language": {"tlh"},
		})
		if res.StatusCode != 200 {
			t.Fatalf("%s: %d", path, res.StatusCode)
		}
		for name, want := range map[string][]string{
			"X-Remote-User": {"alice"}, "X-Remote-Uid": {"42"}, "X-Remote-Group": {"dev", "system:authenticated"},
			"X-Remote-Extra-Example.com%2fscope": {"a", "b"}, "Accept-Language": {"tlh"},
		} {
			if !slices.Equal(got[name], want) {
				t.Errorf("%s: %s is %q, want %q", path, name, got[name], want)
			}
		}
		for name := range got {
			if strings.HasPrefix(name, "Impersonate-") || name == "Authorization" || strings.Contains(strings.ToLower(name), "evil") || name == "X_remote_user" {
				t.Errorf("%s: header %s came through", path, name)
			}
		}
	}
}

// The path and query reach the server as they were escaped.
func TestProxyRequestLine(t *testing.T) {
	var uri, forwarded, host string
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) {
		uri, forwarded, host = r.RequestURI, strings.Join(r.Header["X-Forwarded-For"], "|"), r.Host
	})
	const path = "/apis/g.example.com/v1/namespaces/a%2Cb/things/x%20y?labelSelector=a%3Db&limit=5"
	f.do(t, "GET", path, nil, http.Header{"X-Forwarded-For": {"203.0.113.9"}})
	if uri != path {
		t.Errorf("request line %q, want %q", uri, path)
	}
	if forwarded != "203.0.113.9, 127.0.0.1" {
		t.Errorf("X-Forwarded-For %q", forwarded)
	}
	if host != "api.ns.svc:443" {
		t.Errorf("Host %q", host)
	}
}

// The answer reaches the client with its headers, except for those that only the
// gateway sets.
func TestProxyAnswer(t *testing.T) {
	f := startFront(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("Warning", `299 - "one"`)
		w.Header().Add("Warning", `299 - "two"`)
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Audit-Id", "theirs")
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "short")
	})
	res := f.do(t, "GET", "/apis/g.example.com/v1/things", nil, nil)
	body, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusTeapot || string(body) != "short" {
		t.Errorf("got %d %q", res.StatusCode, body)
	}
	if w := res.Header["Warning"]; !slices.Equal(w, []string{`299 - "one"`, `299 - "two"`}) {
		t.Errorf("warnings %q", w)
	}
	if res.Header.Get("Content-Type") != "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList" {
		t.Errorf("Content-Type %q", res.Header.Get("Content-Type"))
	}
	if res.Header.Get("Access-Control-Allow-Origin") != "" || res.Header.Get("Audit-Id") != "" {
		t.Errorf("headers of the server that are not its to set: %v", res.Header)
	}
}

// An answer without a body has no Content-Length, whatever the server says.
func TestNoContent(t *testing.T) {
	for status, want := range map[int]string{http.StatusNoContent: "", http.StatusOK: "5", http.StatusNotModified: "5"} {
		res := &http.Response{StatusCode: status, Header: http.Header{"Content-Length": {"5"}}, Request: httptest.NewRequest("GET", "/", nil)}
		if err := modifyResponse(res); err != nil || res.Header.Get("Content-Length") != want {
			t.Errorf("%d: Content-Length %q, %v", status, res.Header.Get("Content-Length"), err)
		}
	}
}

// Redirects are refused, except for those to the present hash of an OpenAPI document.
func TestProxyRedirect(t *testing.T) {
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusMovedPermanently)
	})
	for path, code := range map[string]int{
		"/apis/g.example.com/v1/things?to=https://169.254.169.254/":                                   502,
		"/openapi/v3/apis/g/v1?to=https://169.254.169.254/":                                           502,
		"/openapi/v3/apis/g/v1?to=//evil.example.com/openapi/v3/apis/g/v1":                            502,
		"/openapi/v3/apis/g/v1?to=" + url.QueryEscape("/openapi/v3/apis/other/v1?hash=B"):             502,
		"/openapi/v3/apis/g/v1?to=" + url.QueryEscape("/openapi/v3/apis/g/v1?hash=B"):                 301, // the present hash
		"/apis/g.example.com/v1/things?to=" + url.QueryEscape("/apis/g.example.com/v1/things?hash=B"): 502,
	} {
		res := f.do(t, "GET", path, nil, nil)
		if res.StatusCode != code {
			t.Errorf("%s: %d, want %d", path, res.StatusCode, code)
			continue
		}
		if code != 502 {
			continue
		}
		s := statusOf(t, res)
		if s.Code != 502 || !strings.Contains(s.Message, errRedirect.Error()) || res.Header.Get("Location") != "" {
			t.Errorf("%s: %+v", path, s)
		}
	}
	if n := f.broken.Load(); n != 0 {
		t.Errorf("a redirect made the server suspect %d times", n)
	}
}

// closedPort returns an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A server that refuses connections gives 503.
func TestProxyRefusedConnection(t *testing.T) {
	f := frontOf(t, closedPort(t), upstream.Trust{})
	for _, method := range []string{"GET", "POST"} {
		res := f.do(t, method, "/apis/g.example.com/v1/things", nil, nil)
		s := statusOf(t, res)
		if res.StatusCode != 503 || s.Reason != metav1.StatusReasonServiceUnavailable || res.Header.Get("Retry-After") != "" {
			t.Errorf("%s: %d %v %+v", method, res.StatusCode, res.Header, s)
		}
	}
	if f.broken.Load() == 0 {
		t.Error("the server is not suspect")
	}
}

// A connection that breaks before the answer gives 503; later it breaks the client's
// answer off.
func TestProxyBrokenConnection(t *testing.T) {
	f := startFront(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	for _, method := range []string{"POST", "PATCH", "DELETE", "PUT", "GET"} {
		before := f.broken.Load()
		res := f.do(t, method, "/apis/g.example.com/v1/things/x", nil, nil)
		if s := statusOf(t, res); res.StatusCode != 503 || s.Code != 503 || res.Header.Get("Retry-After") != "" {
			t.Errorf("%s: %d, Retry-After %q, want 503 and none", method, res.StatusCode, res.Header.Get("Retry-After"))
		} else if strings.Contains(s.Message, "not known whether") != (method != "GET") {
			t.Errorf("%s: %s", method, s.Message)
		}
		if f.broken.Load() == before {
			t.Errorf("%s: the server is not suspect", method)
		}
	}
}

// The 503 for an API whose server is away has no Retry-After: kubectl fails at once
// instead of repeating the request ten times.
func TestProxyUnavailable(t *testing.T) {
	w := httptest.NewRecorder()
	rt := &Route{Name: "v1.g.example.com", Condition: apiservice.Condition{Status: "False", Reason: "MissingEndpoints", Message: "none"}}
	(&Proxy{}).Send(w, httptest.NewRequest("POST", "/apis/g.example.com/v1/things", nil), rt)
	if s := statusOf(t, w.Result()); w.Code != 503 || w.Header().Get("Retry-After") != "" || !strings.Contains(s.Message, "MissingEndpoints: none") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// An upgraded connection forwards both directions, and bytes that the client sent with
// its request.
func TestProxyUpgrade(t *testing.T) {
	var user string
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		user = r.Header.Get("X-Remote-User")
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			fmt.Fprint(conn, strings.ToUpper(line))
		}
	})
	for _, method := range []string{"GET", "POST"} {
		conn, err := net.Dial("tcp", f.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// What comes in the same piece as the request is the other protocol's already.
		fmt.Fprint(conn, method+" /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: gw\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly\n")
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != "echo" {
			t.Fatalf("%s: %+v %v", method, res, err)
		}
		if length, said := res.Header["Content-Length"]; said {
			t.Errorf("%s: the answer that switches has the Content-Length %q", method, length)
		}
		for _, word := range []string{"early\n", "one\n", "two\n"} {
			if word != "early\n" {
				fmt.Fprint(conn, word)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			if got, err := r.ReadString('\n'); err != nil || got != strings.ToUpper(word) {
				t.Fatalf("%s: got %q %v, want %q", method, got, err, word)
			}
		}
		conn.Close()
	}
	if user != "alice" {
		t.Errorf("the upgrade came as %q", user)
	}
}

// janeAuthenticator authenticates every request as the user jane.
type janeAuthenticator struct{}

func (janeAuthenticator) Authenticate(*http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: "jane", Groups: []string{"dev"}}, true, nil
}
