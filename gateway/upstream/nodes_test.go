package upstream

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/apiservice/backend"
	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/rest/body"
)

const (
	shortPath = "/apis/g.example.com/v1/things"
	watchPath = shortPath + "?watch=true"
)

// node is an endpoint that counts its requests.
type node struct {
	*httptest.Server
	mu    sync.Mutex
	got   []string // "METHOD body", of the requests that it saw whole
	serve http.HandlerFunc
	conns atomic.Int32  // that were made
	ends  chan struct{} // one for each connection that has ended, while there is room
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	n.mu.Lock()
	n.got = append(n.got, strings.TrimSpace(r.Method+" "+string(body)))
	n.mu.Unlock()
	if n.serve != nil {
		n.serve(w, r)
		return
	}
	fmt.Fprint(w, "from ", n.Listener.Addr())
}

// seen returns what the node got, and forgets it.
func (n *node) seen() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.got = nil }()
	return n.got
}

// startNode starts an endpoint; serve nil answers 200. The network is tls (HTTP/1.1 and
// HTTP/2), tls1 (only HTTP/1.1), unix (HTTP/1.1 on a socket) or h2c (HTTP/2 also).
func startNode(t testing.TB, network string, serve http.HandlerFunc, adjust ...func(*http.Server)) *node {
	t.Helper()
	n := &node{serve: serve, ends: make(chan struct{}, 100)}
	n.Server = httptest.NewUnstartedServer(n)
	n.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			n.conns.Add(1)
		}
		if s == http.StateClosed {
			select {
			case n.ends <- struct{}{}:
			default:
			}
		}
	}
	for _, f := range adjust {
		f(n.Config)
	}
	n.Server.EnableHTTP2 = network == "tls"
	if network == "unix" || network == "h2c" {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		n.Listener.Close()
		n.Listener = l
		n.Config.Protocols = new(http.Protocols)
		n.Config.Protocols.SetHTTP1(true)
		n.Config.Protocols.SetUnencryptedHTTP2(network == "h2c")
		n.Start()
	} else {
		n.StartTLS()
	}
	t.Cleanup(func() { n.CloseClientConnections(); n.Close() })
	return n
}

func (n *node) endpoint() Endpoint {
	a := n.Listener.Addr()
	e := Endpoint{URL: a.Network() + "://" + a.String(), Network: a.Network(), Address: a.String(), Weight: 1, Base: mustParse("https://example.com")}
	if a.Network() == "unix" {
		e.Base = mustParse("http://server")
	}
	return e
}

func mustParse(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err)
	}
	return u
}

// turns is a policy with RoundRobin, for tests that must know which endpoint is first.
func turns() Policy {
	p := NewPolicy(&backend.Spec{Balance: backend.RoundRobin})
	p.PanicThresholdPercent = 0
	p.Timeouts.Connect = 20 * time.Second // for a busy machine
	return p
}

// over returns an Upstream with the endpoints, in this order.
func over(t testing.TB, p Policy, endpoints ...Endpoint) *Upstream {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(testServer().Certificate())
	u := New(Config{
		Base: mustParse("https://example.com"), Endpoints: endpoints, Policy: p,
		Trust: Trust{Roots: func() *x509.CertPool { return pool }, ServerName: "example.com"},
	})
	t.Cleanup(u.Close)
	return u
}

// testServer is a server with the certificate of all servers of httptest.
var testServer = sync.OnceValue(func() *httptest.Server {
	s := httptest.NewTLSServer(nil)
	s.Close()
	return s
})

// result is the outcome of a request.
type result struct {
	code  int
	body  string
	err   error
	trace *Trace
}

func send(t testing.TB, u *Upstream, k kind, method, text string, header ...string) result {
	t.Helper()
	tr := &Trace{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), TraceKey{}, tr))
	defer cancel()
	req := newRequest(ctx, method, shortPath, nil)
	if n := len(text); n > 0 && n <= body.MaxSmall {
		body.Put(req, []byte(text)) // as the gateway has read it
	} else if n > 0 {
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader(text)), int64(n) // it is read once
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := u.send(req, k)
	if err != nil {
		return result{err: err, trace: tr}
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return result{res.StatusCode, string(got), err, tr}
}

// newRequest returns a request of a valid method for a path.
func newRequest(ctx context.Context, method, path string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, "https://example.com"+path, body)
	if err != nil {
		panic(err)
	}
	return req
}

// startRaw starts a listener that calls talk with each connection and then closes it, and
// returns its address. With a protocol the connection is TLS.
func startRaw(t *testing.T, protocol string, talk func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	config := testServer().TLS.Clone()
	config.NextProtos, config.DynamicRecordSizingDisabled = []string{protocol}, true
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if protocol != "" {
				conn = tls.Server(conn, config)
			}
			go func() {
				defer conn.Close()
				talk(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// rough is an endpoint that calls talk with each connection: after it has read the
// header of a request, which it counts, or without TLS if eager.
func rough(t *testing.T, eager bool, talk func(net.Conn)) (Endpoint, *atomic.Int32) {
	t.Helper()
	requests := new(atomic.Int32)
	if eager {
		return At(startRaw(t, "", talk))[0], requests
	}
	return At(startRaw(t, "http/1.1", func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			requests.Add(1)
			talk(conn)
		}
	}))[0], requests
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

// receive returns what a channel delivers within 20 seconds.
func receive[T any](t *testing.T, ch <-chan T, otherwise string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(await.Patience()):
		t.Fatal(otherwise)
	}
	return v
}

// by returns a request of a user.
func by(name string) *http.Request {
	return newRequest(resource.WithAction(context.Background(), &resource.Action{User: &resource.User{Name: name}}), "GET", "/", nil)
}

// pick chooses the endpoint for a short request; nil if there is none.
func pick(u *Upstream, req *http.Request) *endpoint {
	l := u.newRetryLoop(req, short)
	return l.pick()
}
