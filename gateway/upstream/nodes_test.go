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
	"portico/resource"
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

// startNode starts an endpoint: network is tls or unix; serve nil answers 200.
func startNode(t testing.TB, network string, serve http.HandlerFunc) *node {
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
	n.Server.EnableHTTP2 = true
	if network == "unix" {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		n.Listener.Close()
		n.Listener = l
		n.Start()
	} else {
		n.StartTLS()
	}
	t.Cleanup(func() { n.CloseClientConnections(); n.Close() })
	return n
}

func (n *node) endpoint() Endpoint {
	a := n.Listener.Addr()
	e := Endpoint{
		URL: a.Network() + "://" + a.String(), Network: a.Network(), Address: a.String(), Weight: 1,
		Base: &url.URL{Scheme: "https", Host: "example.com"},
	}
	if a.Network() == "unix" {
		e.Base = &url.URL{Scheme: "http", Host: "server"}
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
	p.Timeouts.Connect = 20 * time.Second // of a machine that has other things to do
	return p
}

// over returns an Upstream with the endpoints, in this order, by one policy.
func over(t testing.TB, p Policy, endpoints ...Endpoint) *Upstream {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(httptestCertificate(t))
	u := New(Config{
		Base: &url.URL{Scheme: "https", Host: "example.com"}, Endpoints: endpoints, Policy: p,
		Trust: Trust{Roots: fixed(pool), ServerName: "example.com"},
	})
	t.Cleanup(u.Close)
	return u
}

// httptestCertificate is the certificate of all servers of httptest.
func httptestCertificate(t testing.TB) *x509.Certificate {
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	defer s.Close()
	return s.Certificate()
}

// result is the outcome of a request.
type result struct {
	code  int
	body  string
	err   error
	trace *Trace
}

func send(t testing.TB, u *Upstream, k kind, method, body string, header ...string) result {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var r io.Reader
	if body != "" {
		r = io.NopCloser(strings.NewReader(body)) // as of a client: it is read once
	}
	tr := &Trace{}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, TraceKey{}, tr), method, "https://example.com/apis/g.example.com/v1/things", r)
	if err != nil {
		return result{err: err}
	}
	if body != "" {
		req.ContentLength = int64(len(body))
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

// rough is an endpoint that calls talk with each connection: after it has read the
// header of a request, or at once if eager.
func rough(t *testing.T, eager bool, talk func(net.Conn)) (Endpoint, func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := httptest.NewUnstartedServer(nil)
	s.StartTLS()
	config := s.TLS.Clone()
	s.Close()
	config.NextProtos, config.DynamicRecordSizingDisabled = []string{"http/1.1"}, true
	var mu sync.Mutex
	var requests int
	go func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer raw.Close()
				if eager {
					talk(raw)
					return
				}
				conn := tls.Server(raw, config)
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				mu.Lock()
				requests++
				mu.Unlock()
				talk(conn)
				conn.Close()
			}()
		}
	}()
	return At(l.Addr().String())[0], func() int { mu.Lock(); defer mu.Unlock(); return requests }
}

// by returns a request of a user.
func by(name string) *http.Request {
	req, _ := http.NewRequest("GET", "https://example.com/", nil)
	return req.WithContext(resource.WithAction(req.Context(), &resource.Action{User: &resource.User{Name: name}}))
}

// pick chooses the endpoint for a short request; nil if there is none.
func pick(u *Upstream, req *http.Request) *endpoint {
	l := u.newRetryLoop(req, short)
	return l.pick()
}
