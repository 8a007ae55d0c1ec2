package gateway

import (
	"bufio"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"portico/apiservice"
	"portico/resource"
)

// raw sends a request as it stands and returns the answer.
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

// No client gets to speak HTTP to a server past the gateway.
func TestNoTunnelForHTTP(t *testing.T) {
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	})
	for protocol, code := range map[string]int{
		"websocket": 101, "SPDY/3.1": 101,
		"h2c": 204, "H2C": 204, "h2": 204, "HTTP/2.0": 204, "TLS/1.0": 204, "websocket, h2c": 204, "": 204,
		"websocket\nUpgrade: h2c": 204,
	} {
		res := f.raw(t, "GET /api/v1/namespaces/a/pods/b/exec HTTP/1.1\nHost: gw\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\nUpgrade: "+protocol+"\n\n")
		if res.StatusCode != code {
			t.Errorf("%q: %d, want %d", protocol, res.StatusCode, code)
		}
	}
	// Without the Connection header it is no wish of the client's.
	if res := f.raw(t, "GET /api/v1/namespaces/a/pods/b/exec HTTP/1.1\nHost: gw\nUpgrade: websocket\n\n"); res.StatusCode != 204 {
		t.Errorf("an Upgrade alone: %d", res.StatusCode)
	}
}

// A server may not switch protocols when nobody asked, nor answer a wish for
// another protocol as if it were done.
func TestAnswersToUpgrades(t *testing.T) {
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("code") {
			w.WriteHeader(map[string]int{"200": 200, "403": 403}[r.URL.Query().Get("code")])
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	res := f.do(t, "GET", "/apis/g.example.com/v1/things", nil, nil)
	if s := statusOf(t, res); res.StatusCode != 503 || !strings.Contains(s.Message, errSwitched.Error()) {
		t.Errorf("a switch: %d %q", res.StatusCode, s.Message)
	}
	const wish = " HTTP/1.1\nHost: gw\nConnection: Upgrade\nUpgrade: websocket\n\n"
	before := f.broken.Load()
	res = f.raw(t, "GET /api/v1/namespaces/a/pods/b/exec?code=200"+wish)
	if s := statusOf(t, res); res.StatusCode != 503 || s.Message != "invalid upgrade response: status code 200" {
		t.Errorf("200: %d %q", res.StatusCode, s.Message)
	}
	if res = f.raw(t, "GET /api/v1/namespaces/a/pods/b/exec?code=403"+wish); res.StatusCode != 403 {
		t.Errorf("403: %d", res.StatusCode)
	}
	if f.broken.Load() != before {
		t.Error("the server is suspected")
	}
}

// What a client says of the connection takes away nothing that the gateway
// says, and what it says after the body reaches nobody.
func TestConnectionHeaderAndTrailers(t *testing.T) {
	var header, trailer http.Header
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		header, trailer = r.Header, r.Trailer
	})
	res := f.raw(t, `POST /apis/g.example.com/v1/things HTTP/1.1
Host: gw
Audit-Id: a1
Connection: close, Audit-Id, X-Remote-User, X-Forwarded-For, X-Forwarded-Uri, Host
Trailer: X-Remote-Group
Transfer-Encoding: chunked

1
x
0
X-Remote-Group: system:masters

`)
	if res.StatusCode != 200 || header.Get("Audit-Id") != "a1" || header.Get("X-Remote-User") != "alice" ||
		header.Get("X-Forwarded-For") == "" || header.Get("X-Forwarded-Uri") == "" {
		t.Errorf("%d %v", res.StatusCode, header)
	}
	if len(trailer) > 0 {
		t.Errorf("trailers %v", trailer)
	}
}

// Servers differ in how they read some paths.
func TestAmbiguousPaths(t *testing.T) {
	reached := false
	f := startFront(t, func(http.ResponseWriter, *http.Request) { reached = true })
	for _, path := range []string{"x/../../secrets/y", "x/..", "x/%2e%2E/y", "./x", "x%2F..%2Fy", ".."} {
		res := f.raw(t, "GET /apis/g.example.com/v1/namespaces/a/things/"+path+" HTTP/1.1\nHost: gw\n\n")
		if s := statusOf(t, res); res.StatusCode != 400 || reached {
			t.Errorf("%s: %d %q", path, res.StatusCode, s.Message)
		}
	}
	if res := f.raw(t, "GET /apis/g.example.com/v1/things/.x..y HTTP/1.1\nHost: gw\n\n"); res.StatusCode != 200 {
		t.Errorf("dots in a name: %d", res.StatusCode)
	}
}

// A user who would be another one after a header's syntax has been at the name
// is not passed on.
func TestUnspeakableUsers(t *testing.T) {
	for _, c := range []struct {
		user *resource.User
		ok   bool
	}{
		{alice(), true},
		{&resource.User{Name: "Zoë", Groups: []string{"a b"}}, true},
		{&resource.User{Name: "root "}, false},
		{&resource.User{Name: "a\r\nX-Remote-Group: system:masters"}, false},
		{&resource.User{Name: "a", UID: "\x00"}, false},
		{&resource.User{Name: "a", Groups: []string{"b", "\tsystem:masters"}}, false},
		{&resource.User{Name: "a", Extra: map[string][]string{"k": {"v\n"}}}, false},
	} {
		act := &resource.Action{User: c.user}
		r := httptest.NewRequest("GET", "/apis/g.example.com/v1/things", nil)
		w := httptest.NewRecorder()
		rt := &route{name: "v1.g", condition: apiservice.Passed(), upstream: &upstream{short: http.HandlerFunc(ok)}}
		(&Gateway{}).proxy(w, r.WithContext(resource.WithAction(r.Context(), act)), rt)
		if (w.Code == 200) != c.ok || !c.ok && w.Code != 400 {
			t.Errorf("%q: %d", c.user, w.Code)
		}
	}
}

func ok(http.ResponseWriter, *http.Request) {}

// What a server sends beyond a response is not taken for the next one.
func TestDirectSurplus(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	for name, c := range map[string]struct{ method, answer string }{
		"after a length":    {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + evil},
		"after chunks":      {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + evil},
		"length and chunks": {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 51\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + evil},
		"after HEAD":        {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n" + evil},
		"after 204":         {"GET", "HTTP/1.1 204 No Content\r\n\r\n" + evil},
		"after 304":         {"GET", "HTTP/1.1 304 Not Modified\r\n\r\n" + evil},
		"204 with a length": {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 43\r\n\r\n"},
		"204 with chunks":   {"GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"},
		"empty":             {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + evil},
	} {
		s := newSocket(t)
		l, err := net.Listen("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := 0; ; i++ {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					b := make([]byte, 4096)
					for first := i == 0; ; first = false {
						if _, err := conn.Read(b); err != nil {
							return
						}
						switch {
						case first:
							io.WriteString(conn, c.answer)
						case i == 0:
							io.WriteString(conn, evil)
						default:
							io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
						}
					}
				}()
			}
		}()
		res, err := s.send(t, c.method, "/", "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || strings.Contains(string(body), "evil") {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		res.Body.Close()
		s.want(t, "GET", "/", "", 200, "good")
		l.Close()
	}
}

// A header that Write would make another one of is refused, as http.Transport
// does.
func TestDirectRefusesBadHeaders(t *testing.T) {
	s := newSocket(t)
	s.serve(t, echo)
	for name, value := range map[string]string{"X-Remote-Group": "a\r\nX-Remote-User: root", "X y": "z", "Good": "\x00"} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://backend/", nil)
		req.Header[name] = []string{value}
		before := s.indirect.Load()
		if _, err := s.RoundTrip(req); err != nil || s.indirect.Load() != before+1 || s.dials.Load() != 0 {
			t.Errorf("%s: %q went directly, %v", name, value, err)
		}
	}
}

// A server that is killed answers none of the requests it has; the gateway
// answers them all, and suspects it.
func TestProxyKilledWithManyRequests(t *testing.T) {
	const requests = 60
	for _, network := range []string{"tcp", "unix"} {
		var arrived sync.WaitGroup
		arrived.Add(requests)
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Has("warm") {
				return
			}
			arrived.Done()
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		}))
		server.EnableHTTP2 = true
		var f *front
		if network == "tcp" {
			server.StartTLS()
			pool := x509.NewCertPool()
			pool.AddCert(server.Certificate())
			f = frontOf(t, server.Listener.Addr().String(), trust{roots: fixed(pool), serverName: "example.com"})
		} else {
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			if err != nil {
				t.Fatal(err)
			}
			server.Listener = l
			server.Start()
			f = frontOf(t, l.Addr().String(), trust{plain: true})
			f.up.endpoints.network = "unix"
		}
		f.do(t, "GET", "/apis/g.example.com/v1/things?warm", nil, nil) // some connections were used before
		var answered sync.WaitGroup
		for i := range requests {
			method, path, retry := "GET", "/apis/g.example.com/v1/things/x", "1"
			switch i % 3 {
			case 1:
				path = watchPath
			case 2:
				method, retry = "DELETE", ""
			}
			answered.Go(func() {
				res := f.do(t, method, path, nil, nil)
				if s := statusOf(t, res); res.StatusCode != 503 || s.Code != 503 || res.Header.Get("Retry-After") != retry {
					t.Errorf("%s %s %s: %d, Retry-After %q, %s", network, method, path, res.StatusCode, res.Header.Get("Retry-After"), s.Message)
				}
			})
		}
		arrived.Wait()
		server.Listener.Close()
		server.CloseClientConnections()
		answered.Wait()
		if f.broken.Load() == 0 {
			t.Errorf("%s: the server is not suspected", network)
		}
		server.Close()
	}
}
