package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"portico/gateway/upstream"
	"portico/resource"
)

// A request to upgrade to HTTP or TLS is not forwarded as an upgrade: it would reach
// the server past the gateway's checks.
func TestNoTunnelForHTTP(t *testing.T) {
	t.Parallel()
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
		res := f.raw(t, "GET "+execPath+" HTTP/1.1\nHost: gw\nConnection: Upgrade, HTTP2-Settings\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\nUpgrade: "+protocol+"\n\n")
		if res.StatusCode != code {
			t.Errorf("%q: %d, want %d", protocol, res.StatusCode, code)
		}
	}
	// Without the Connection header it is no wish of the client's.
	if res := f.raw(t, "GET "+execPath+" HTTP/1.1\nHost: gw\nUpgrade: websocket\n\n"); res.StatusCode != 204 {
		t.Errorf("an Upgrade alone: %d", res.StatusCode)
	}
}

// A server must not switch protocols unasked, nor answer an upgrade with a success that
// is no switch.
func TestAnswersToUpgrades(t *testing.T) {
	t.Parallel()
	f := startFront(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("code") {
			code, _ := strconv.Atoi(r.URL.Query().Get("code"))
			http.Error(w, "not you", code)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			defer conn.Close()
			fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	res := f.get(t, shortPath)
	if s := statusOf(t, res); res.StatusCode != 503 || !strings.Contains(s.Message, upstream.ErrSwitched.Error()) {
		t.Errorf("a switch: %d %q", res.StatusCode, s.Message)
	}
	const wish = " HTTP/1.1\nHost: gw\nConnection: Upgrade\nUpgrade: websocket\n\n"
	before := f.broken.Load()
	res = f.raw(t, "GET "+execPath+"?code=200"+wish)
	if s := statusOf(t, res); res.StatusCode != 503 || s.Message != "invalid upgrade response: status code 200" {
		t.Errorf("200: %d %q", res.StatusCode, s.Message)
	}
	res = f.raw(t, "GET "+execPath+"?code=403"+wish)
	if body, _ := io.ReadAll(res.Body); res.StatusCode != 403 || string(body) != "not you\n" {
		t.Errorf("403: %d %q", res.StatusCode, body)
	}
	if f.broken.Load() != before {
		t.Error("the server is suspected")
	}
}

// Trailers of a request are not forwarded: they were not part of any decision about it.
func TestRequestTrailers(t *testing.T) {
	t.Parallel()
	var trailer http.Header
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		trailer = r.Trailer
	})
	res := f.raw(t, "POST "+shortPath+" HTTP/1.1\nHost: gw\nTrailer: X-Remote-Group\nTransfer-Encoding: chunked\n\n1\nx\n0\nX-Remote-Group: system:masters\n\n")
	if res.StatusCode != 200 || len(trailer) > 0 {
		t.Errorf("%d, the server got the trailers %v", res.StatusCode, trailer)
	}
}

// A malformed or incomplete body is a 400, and does not count against the server.
func TestMalformedBody(t *testing.T) {
	t.Parallel()
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	policy := f.up.Policy()
	policy.Timeouts.ResponseHeader = 0
	f.up.SetPolicy(policy)
	for _, path := range []string{shortPath, longPath} { // HTTP/1.1 and HTTP/2
		head := "POST " + path + " HTTP/1.1\nHost: gw\nTransfer-Encoding: chunked\n\n"
		for _, body := range []string{"-1\n", "0x5\nhello\n0\n\n", "5\nhello0\n\n", "5\nhello\nzz\n"} {
			res := f.raw(t, head+body)
			if s := statusOf(t, res); res.StatusCode != 400 || !strings.HasPrefix(s.Message, "read the request's body: ") {
				t.Errorf("%s: %q: %d %q", path, body, res.StatusCode, s.Message)
			}
		}
		for _, head := range []string{head + "5\nhello\n", strings.Replace(head, "Transfer-Encoding: chunked", "Content-Length: 100000", 1) + "hello"} {
			conn, err := net.Dial("tcp", f.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, strings.ReplaceAll(head, "\n", "\r\n"))
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}
	f.Server.Close() // when all requests are over
	if e := f.up.Status().Endpoints[0]; e.Errors != 0 || f.broken.Load() != 0 {
		t.Errorf("suspected %d times: %+v", f.broken.Load(), e)
	}
}

// Headers that the gateway sets, or that it or audit has read, reach the server although the
// client's Connection header names them; so do those that delimit the body.
func TestConnectionHidesNothing(t *testing.T) {
	t.Parallel()
	type seen struct {
		host, body string
		header     http.Header
	}
	var got seen
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{r.Host, string(body), r.Header}
	})
	lines := map[string]string{
		"Content-Type": "text/plain", "Content-Encoding": "gzip", "Accept": "application/json;as=Table", "Accept-Encoding": "gzip",
		"User-Agent": "kubectl/v1", "Audit-Id": "a1", "Content-Length": "2",
	}
	head := "POST /apis/g.example.com/v1/things HTTP/1.1\nHost: gw\n"
	for name, value := range lines {
		head += name + ": " + value + "\n"
	}
	for _, named := range []string{
		"Content-Type", "content-type", "Content-Encoding", "Accept", "Accept-Encoding", "User-Agent", "Audit-Id", "Content-Length", "Host",
		"Transfer-Encoding", "close, Content-Type,Accept", "keep-alive,, Content-Encoding", "X-Remote-User, X-Forwarded-For, X-Forwarded-Uri",
	} {
		got = seen{}
		if res := f.raw(t, head+"Connection: "+named+"\n\n{}"); res.StatusCode != 200 {
			t.Errorf("%s: %d", named, res.StatusCode)
		}
		for name, value := range lines {
			if got.header.Get(name) != value {
				t.Errorf("%s: %s is %q", named, name, got.header.Get(name))
			}
		}
		if got.header.Get("X-Remote-User") != "alice" || got.header.Get("X-Forwarded-For") == "" || got.header.Get("X-Forwarded-Uri") == "" {
			t.Errorf("%s: the gateway's own headers: %v", named, got.header)
		}
		if got.body != "{}" || got.host != "api.ns.svc:443" || got.header["Connection"] != nil {
			t.Errorf("%s: %+v", named, got)
		}
	}
	if f.raw(t, head+"X-Mine: x\nConnection: X-Mine\n\n{}"); got.header["X-Mine"] != nil {
		t.Error("what is the connection's alone is passed on")
	}
}

// Paths that servers read differently are refused.
func TestAmbiguousPaths(t *testing.T) {
	t.Parallel()
	reached := false
	f := startFront(t, func(http.ResponseWriter, *http.Request) { reached = true })
	for _, path := range []string{"x/../../secrets/y", "x/..", "x/%2e%2E/y", "./x", "x%2F..%2Fy", "..",
		"x%2Fstatus", "x%2fexec", "x%5Cstatus", `x\status`, "x%00", "x%00/status", "x%0d%0aX-Remote-User:root", "x%0A", "x%7f", "x/proxy/a%2Fb", "../../../v1%2Fnamespaces", "x%2F"} {
		res := f.raw(t, "GET /apis/g.example.com/v1/namespaces/a/things/"+path+" HTTP/1.1\nHost: gw\n\n")
		if s := statusOf(t, res); res.StatusCode != 400 || reached {
			t.Errorf("%s: %d %q", path, res.StatusCode, s.Message)
		}
	}
	if res := f.raw(t, "GET /apis/g.example.com/v1/things/.x..y HTTP/1.1\nHost: gw\n\n"); res.StatusCode != 200 {
		t.Errorf("dots in a name: %d", res.StatusCode)
	}
	for _, path := range []string{"/apis/g.example.com/v1/namespaces/a%2Fb/things/x", "/apis/g.example.com%2Fv1/x/things/y", "/apis/g.example.com/v1%5c/things"} {
		reached = false
		if res := f.raw(t, "GET "+path+" HTTP/1.1\nHost: gw\n\n"); res.StatusCode != 400 || reached {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
	// Escaped twice it is a name with a percent sign for the gateway and the server.
	if res := f.raw(t, "GET /apis/g.example.com/v1/things/x%252Fstatus HTTP/1.1\nHost: gw\n\n"); res.StatusCode != 200 {
		t.Errorf("escaped twice: %d", res.StatusCode)
	}
}

// A user is refused if its name, group or extra would change as the value of a header.
func TestUsersInvalidAsHeader(t *testing.T) {
	t.Parallel()
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
		{&resource.User{Name: "a", Constraint: &resource.Constraint{Impersonator: &resource.User{Name: "b"}, Mode: "user-info"}}, true},
		{&resource.User{Name: "a", Constraint: &resource.Constraint{Impersonator: &resource.User{Name: "b\n"}, Mode: "user-info"}}, false},
		{&resource.User{Name: "a", Extra: map[string][]string{"k": {"v\n"}}}, false},
	} {
		r, w := httptest.NewRequest("GET", shortPath, nil), httptest.NewRecorder()
		up := &Upstream{short: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
		along(routeTo(up))(w, r.WithContext(resource.WithAction(r.Context(), &resource.Action{User: c.user})))
		if (w.Code == 200) != c.ok || !c.ok && w.Code != 400 {
			t.Errorf("%q: %d", c.user, w.Code)
		}
	}
}

// A query that is not percent-encoded is refused over every protocol: it could end the
// request line early.
func TestQueryMustBeEncoded(t *testing.T) {
	t.Parallel()
	server, _ := startTLS(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.RequestURI != shortPath+"?x=a%20b" {
			t.Errorf("%s arrived", r.RequestURI)
		}
	})
	g := newLooped(t, true) // its clients speak HTTP/2
	g.sendsTo(t, server)
	for _, query := range []string{"x HTTP/1.0", "x=a b", "x#y", "x=é", "x=\xff", "watch=true&x=a b"} {
		for _, method := range []string{http.MethodGet, http.MethodPost, "BREW"} {
			req, err := http.NewRequest(method, g.URL+shortPath, strings.NewReader("body"))
			if err != nil {
				t.Fatal(err)
			}
			req.URL.RawQuery = query
			res, err := g.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if s := statusOf(t, res); res.ProtoMajor != 2 || res.StatusCode != 400 || !strings.Contains(s.Message, "percent-encoded") {
				t.Errorf("%s %q: HTTP/%d %d %q", method, query, res.ProtoMajor, res.StatusCode, s.Message)
			}
			res.Body.Close()
		}
	}
	if e := g.up.Status().Endpoints[0]; e.Errors != 0 {
		t.Errorf("the server is blamed: %+v", e)
	}
	if res := g.get(t, shortPath+"?x=a%20b", nil); res.StatusCode != 200 {
		t.Errorf("percent-encoded: %d", res.StatusCode)
	}
}

// A method that is no token is not sent to a server.
func TestMethodIsAToken(t *testing.T) {
	t.Parallel()
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s arrived", r.Method) })
	for _, method := range []string{"GET /apis/g.example.com/v1/secrets HTTP/1.1", "G T", "GET\r\nX: y", "GÉT"} {
		for _, path := range []string{shortPath, "/api/v1/namespaces/a/pods/x/log"} { // HTTP/1.1 and HTTP/2
			r := httptest.NewRequest("GET", path, nil)
			r.Method = method
			w := httptest.NewRecorder()
			f.Config.Handler.ServeHTTP(w, r)
			if w.Code != 400 {
				t.Errorf("%q %s: %d", method, path, w.Code)
			}
		}
	}
}

// Headers that a server could fold into those of the front proxy are removed.
func TestIdentityInOtherSpellings(t *testing.T) {
	t.Parallel()
	var got http.Header
	f := startFront(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
	lines := ""
	for _, sep := range "-_.!#$%&'*+^`|~" {
		for _, name := range []string{"X-Remote-User", "x-remote-group", "X-REMOTE-Extra-A", "X-Remote-Uid", "Impersonate-User", "Impersonate-Extra-B"} {
			lines += strings.ReplaceAll(name, "-", string(sep)) + ": root\n"
			lines += strings.Replace(name, "-", string(sep), 1) + ": root\n"
		}
	}
	if res := f.raw(t, "GET /apis/g.example.com/v1/things HTTP/1.1\nHost: gw\n"+lines+"\n"); res.StatusCode != 200 || got.Get("X-Remote-User") != "alice" {
		t.Errorf("%d, as %q", res.StatusCode, got["X-Remote-User"])
	}
	for name, values := range got {
		if strings.Contains(strings.Join(values, ","), "root") {
			t.Errorf("%s came through", name)
		}
	}
}
