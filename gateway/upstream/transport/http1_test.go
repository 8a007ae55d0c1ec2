package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// socket is a server on a unix socket, and the Endpoint of it.
type socket struct {
	*counted
	path  string
	conns atomic.Int32 // that were accepted
}

func newSocket(t testing.TB) *socket {
	s := &socket{path: filepath.Join(t.TempDir(), "s")}
	s.counted = newCounted(t, "unix", s.path, Trust{Plain: true})
	return s
}

// serve serves h until the returned function is called, which ends all connections.
func (s *socket) serve(t testing.TB, h http.HandlerFunc) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return func() { server.Close() }
}

// raw calls talk with each connection, numbered from 0, and closes it then.
func (s *socket) raw(t testing.TB, talk func(i int, conn net.Conn)) {
	t.Helper()
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for i := 0; ; i++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				talk(i, conn)
			}()
		}
	}()
}

// answers writes an answer for each request of at most 4 KB that it reads.
func answers(conn net.Conn, list ...string) {
	for _, answer := range list {
		if _, err := conn.Read(make([]byte, 4096)); err != nil {
			return
		}
		_, _ = io.WriteString(conn, answer)
	}
}

func (s *socket) try(t testing.TB, method, path, body string) (res *http.Response, sent bool, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://server"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return s.RoundTrip(req, HTTP1)
}

func (s *socket) want(t *testing.T, method, path, body string, code int, answer string) {
	t.Helper()
	res, _, err := s.try(t, method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != code || string(got) != answer {
		t.Fatalf("%s %s: %d %q, %v; want %d %q", method, path, res.StatusCode, got, err, code, answer)
	}
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	switch r.URL.Path {
	case "/long": // of unknown length, in pieces
		for range 50 {
			fmt.Fprint(w, strings.Repeat("x", 1000))
			http.NewResponseController(w).Flush()
		}
	case "/nothing":
		w.WriteHeader(http.StatusNoContent)
	}
	if r.URL.Path != "/nothing" {
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	}
}

// Answers of all kinds leave the connection to the next request.
func TestHTTP1KeepsItsConnection(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	s.serve(t, echo)
	for range 3 {
		s.want(t, "GET", "/a?b=c", "", 200, "GET /a?b=c ")
		s.want(t, "HEAD", "/a", "", 200, "")
		s.want(t, "POST", "/a", "text", 200, "POST /a text")
		s.want(t, "DELETE", "/nothing", "", 204, "")
		s.want(t, "GET", "/long", "", 200, strings.Repeat("x", 50000)+"GET /long ")
		s.want(t, "PUT", "/a", strings.Repeat("y", 1<<20), 200, "PUT /a "+strings.Repeat("y", 1<<20))
	}
	// A request may begin before net/http has finished with the connection of the last.
	if n := s.conns.Load(); n > 3 || s.broken.Load() != 0 {
		t.Errorf("%d connections, of which %d broke", n, s.broken.Load())
	}
}

// A server that was restarted is reached by the next request, whatever its method, once
// its connections are known to have ended.
func TestHTTP1AfterRestart(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	for range 3 {
		stop := s.serve(t, echo)
		s.want(t, "POST", "/a", "x", 200, "POST /a x")
		s.want(t, "GET", "/a", "", 200, "GET /a ")
		stop()
		p := s.http1(t)
		await.Until(t, "the end of the connection is not noticed", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.takeReady() == nil
		})
	}
	var connect *ConnectError
	if _, sent, err := s.try(t, "GET", "/a", ""); !errors.As(err, &connect) || sent {
		t.Errorf("no server: %v", err)
	}
}

// A request on a connection that carried one before, which the server drops unanswered,
// was sent, and fails with a StaleError; on a new connection with another error.
func TestHTTP1DroppedRequest(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	s.raw(t, func(i int, conn net.Conn) {
		if i == 0 {
			answers(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
		answers(conn, "")
	})
	s.want(t, "GET", "/", "", 200, "ok")
	for _, stale := range []bool{true, false} {
		_, sent, err := s.try(t, "POST", "/", "x")
		var is *StaleError
		if err == nil || !sent || errors.As(err, &is) != stale {
			t.Errorf("sent %v, %T %v; want stale %v", sent, err, err, stale)
		}
	}
}

// An answer that is not read to the end, or is canceled, leaves no connection with the
// rest of it, and does not count as broken.
func TestHTTP1GivenUp(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	hang := make(chan struct{})
	s.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-hang
		}
		echo(w, r)
	})
	defer close(hang)
	res, _, err := s.try(t, "GET", "/long", "")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	s.want(t, "GET", "/a", "", 200, "GET /a ")

	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://server/hang", nil)
	if _, _, err := s.RoundTrip(req, HTTP1); !errors.Is(err, gone) {
		t.Errorf("a client that went away: %v", err)
	}
	s.want(t, "GET", "/a", "", 200, "GET /a ")
	if s.broken.Load() != 0 {
		t.Error("the server is suspected of it")
	}
}

// A malformed answer is an error of a request that was sent.
func TestHTTP1BadAnswers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"no HTTP":              "hello\r\n\r\n",
		"a switch":             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"a header too long":    "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHeader) + "\r\n\r\n",
		"an end in the header": "HTTP/1.1 200 OK\r\nX: ",
	} {
		s := newSocket(t)
		s.raw(t, func(_ int, conn net.Conn) { answers(conn, answer) })
		if res, sent, err := s.try(t, "GET", "/", ""); err == nil || !sent {
			t.Errorf("%s: got %v, sent %v; want an error of a sent request", name, res, sent)
		}
	}
}

// Idle connections are closed after the idle timeout, and expired ones are not used.
func TestHTTP1ClosesIdle(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	s.serve(t, echo)
	p := s.http1(t)
	idle := func() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.conns) }
	s.want(t, "GET", "/a", "", 200, "GET /a ")
	await.Until(t, "it is not kept", func() bool { return idle() == 1 })
	p.mu.Lock()
	p.conns[0].idleSince = time.Now().Add(-time.Hour)
	p.mu.Unlock()
	if p.closeIdle(); idle() != 0 || p.reaper != nil {
		t.Error("it is still open")
	}
	s.want(t, "GET", "/a", "", 200, "GET /a ")
	await.Until(t, "it is not kept", func() bool { return idle() == 1 })
	p.mu.Lock()
	p.conns[0].expires = time.Unix(0, 0)
	p.mu.Unlock()
	s.want(t, "GET", "/a", "", 200, "GET /a ")
	if n := s.conns.Load(); n != 3 {
		t.Errorf("%d connections", n)
	}
}

// Bytes that a server sends beyond an answer are not taken for the next one.
func TestHTTP1Surplus(t *testing.T) {
	t.Parallel()
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
		s.raw(t, func(i int, conn net.Conn) {
			if i == 0 {
				answers(conn, c.answer, evil)
			} else {
				answers(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
			}
		})
		res, _, err := s.try(t, c.method, "/", "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || strings.Contains(string(body), "evil") {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		res.Body.Close()
		s.want(t, "GET", "/", "", 200, "good")
	}
}

// A header or request line that a server could read as another one is not sent.
func TestHTTP1RefusesOddRequests(t *testing.T) {
	t.Parallel()
	s := newSocket(t)
	s.serve(t, echo)
	for name, change := range map[string]func(*http.Request){
		"a line break in a value": func(r *http.Request) { r.Header["X-Remote-Group"] = []string{"a\r\nX-Remote-User: root"} },
		"a space in a name":       func(r *http.Request) { r.Header["X y"] = []string{"z"} },
		"a NUL in a value":        func(r *http.Request) { r.Header["Good"] = []string{"\x00"} },
		"a space in the method":   func(r *http.Request) { r.Method = "GET /secret" },
		"a space in the query":    func(r *http.Request) { r.URL.RawQuery = "a b" },
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://server/", nil)
		change(req)
		if res, sent, err := s.RoundTrip(req, HTTP1); err == nil || sent {
			t.Errorf("%s: %v, sent %v", name, res, sent)
		}
	}
}
