package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"
)

// socket is a server on a unix socket and the direct way to it.
type socket struct {
	*direct
	path     string
	dials    atomic.Int32
	breaks   atomic.Int32
	indirect atomic.Int32
}

func newSocket(t *testing.T) *socket {
	s := &socket{path: filepath.Join(t.TempDir(), "s")}
	s.direct = &direct{
		dial: func(ctx context.Context) (net.Conn, net.Conn, error) {
			s.dials.Add(1)
			conn, err := new(net.Dialer).DialContext(ctx, "unix", s.path)
			return conn, conn, err
		},
		limit: func() time.Duration { return 20 * time.Second }, maxDials: 4,
		successor: func() (*direct, error) { return nil, errRetired },
		broken:    func() { s.breaks.Add(1) }, idleTimeout: 90 * time.Second, maxBody: directBody,
	}
	t.Cleanup(s.retire)
	return s
}

func (s *socket) RoundTrip(req *http.Request) (*http.Response, error) {
	if !s.takes(req) {
		s.indirect.Add(1)
		return &http.Response{StatusCode: http.StatusTeapot, Body: http.NoBody}, nil
	}
	res, _, err := s.direct.send(req, nil)
	return res, err
}

// serve serves h until the returned function is called, which ends all
// connections.
func (s *socket) serve(t *testing.T, h http.HandlerFunc) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return func() { server.Close() }
}

func (s *socket) try(t *testing.T, method, path, body string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://backend"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return s.RoundTrip(req)
}

func (s *socket) want(t *testing.T, method, path, body string, code int, answer string) {
	t.Helper()
	res, err := s.try(t, method, path, body)
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
	case "/close":
		w.Header().Set("Connection", "close")
	}
	if r.URL.Path != "/nothing" {
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.RequestURI(), body)
	}
}

// All kinds of answers leave the connection to the next request.
func TestDirectKeepsItsConnection(t *testing.T) {
	s := newSocket(t)
	s.serve(t, echo)
	for range 3 {
		s.want(t, "GET", "/a?b=c", "", 200, "GET /a?b=c ")
		s.want(t, "HEAD", "/a", "", 200, "")
		s.want(t, "POST", "/a", "text", 200, "POST /a text")
		s.want(t, "DELETE", "/nothing", "", 204, "")
		s.want(t, "GET", "/long", "", 200, strings.Repeat("x", 50000)+"GET /long ")
		s.want(t, "PUT", "/a", strings.Repeat("y", directBody), 200, "PUT /a "+strings.Repeat("y", directBody))
	}
	if n := s.dials.Load(); n != 1 {
		t.Errorf("connected %d times", n)
	}
	s.want(t, "GET", "/close", "", 200, "GET /close ")
	s.want(t, "GET", "/a", "", 200, "GET /a ")
	if n := s.dials.Load(); n != 2 || s.breaks.Load() != 0 {
		t.Errorf("connected %d times, %d connections broke", n, s.breaks.Load())
	}
}

func TestDirectTakesOrdinaryRequestsOnly(t *testing.T) {
	s := newSocket(t)
	request := func(method string, body io.Reader, change func(*http.Request)) *http.Request {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://backend/", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Method = method
		if change != nil {
			change(req)
		}
		return req
	}
	for name, req := range map[string]*http.Request{
		"another method":   request("GET /secret", nil, nil),
		"a large body":     request("POST", bytes.NewReader(make([]byte, directBody+1)), nil),
		"a body of unsaid": request("POST", iotest.OneByteReader(strings.NewReader("x")), func(r *http.Request) { r.ContentLength = -1 }),
		"unsaid, zero":     request("POST", iotest.OneByteReader(strings.NewReader("x")), nil),
		"an upgrade":       request("GET", nil, func(r *http.Request) { r.Header.Set("Upgrade", "websocket") }),
		"an expectation":   request("POST", strings.NewReader("x"), func(r *http.Request) { r.Header.Set("Expect", "100-continue") }),
	} {
		before := s.indirect.Load()
		if _, err := s.RoundTrip(req); err != nil || s.indirect.Load() != before+1 {
			t.Errorf("%s went directly: %v", name, err)
		}
	}
}

// A server that was started anew is reached by the next request, of any method:
// a connection is looked at before it is used.
func TestDirectAfterRestart(t *testing.T) {
	s := newSocket(t)
	for range 3 {
		stop := s.serve(t, echo)
		s.want(t, "POST", "/a", "x", 200, "POST /a x")
		s.want(t, "GET", "/a", "", 200, "GET /a ")
		stop()
	}
	if n := s.dials.Load(); n != 3 {
		t.Errorf("connected %d times", n)
	}
	var op *net.OpError
	if _, err := s.try(t, "GET", "/a", ""); !errors.As(err, &op) || op.Op != "dial" {
		t.Errorf("no server: %v", err)
	}
}

// dropping answers the first request on each connection and drops the second,
// after it has read it.
func dropping(t *testing.T, s *socket) *atomic.Int32 {
	l, err := net.Listen("unix", s.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var seen atomic.Int32
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				b := make([]byte, 4096)
				for i := range 2 {
					if _, err := conn.Read(b); err != nil {
						return
					}
					seen.Add(1)
					if i == 0 {
						io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
					}
				}
			}()
		}
	}()
	return &seen
}

// A request that a connection used before did not answer is sent again if it is
// safe; one that may have done its work is not.
func TestDirectSendsAgain(t *testing.T) {
	s := newSocket(t)
	seen := dropping(t, s)
	s.want(t, "GET", "/", "", 200, "ok")
	s.want(t, "GET", "/", "", 200, "ok")
	if seen.Load() != 3 || s.dials.Load() != 2 {
		t.Errorf("the server saw %d requests on %d connections", seen.Load(), s.dials.Load())
	}
	if _, err := s.try(t, "POST", "/", "x"); err == nil {
		t.Error("there was an answer")
	}
	if seen.Load() != 4 || s.breaks.Load() != 1 {
		t.Errorf("the server saw %d requests, %d connections broke", seen.Load(), s.breaks.Load())
	}
}

// Who does not read to the end, or goes away, leaves nobody a connection with
// the rest of an answer in it.
func TestDirectGivesUp(t *testing.T) {
	s := newSocket(t)
	hang := make(chan struct{})
	s.serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			<-hang
		}
		echo(w, r)
	})
	defer close(hang)
	res, err := s.try(t, "GET", "/long", "")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	s.want(t, "GET", "/a", "", 200, "GET /a ")

	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://backend/hang", nil)
	if _, err := s.RoundTrip(req); !errors.Is(err, gone) {
		t.Errorf("a client that went: %v", err)
	}
	s.want(t, "GET", "/a", "", 200, "GET /a ")
	if s.breaks.Load() != 0 {
		t.Error("the server is suspected of it")
	}
}

func TestDirectBadAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"no HTTP":              "hello\r\n\r\n",
		"a switch":             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"nothing but 103":      strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10),
		"a header too long":    "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", maxHeader) + "\r\n\r\n",
		"an end in the header": "HTTP/1.1 200 OK\r\nX: ",
	} {
		s := newSocket(t)
		l, err := net.Listen("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if conn, err := l.Accept(); err == nil {
				conn.Read(make([]byte, 4096))
				io.WriteString(conn, answer)
				conn.Close()
			}
		}()
		if res, err := s.try(t, "GET", "/", ""); err == nil {
			t.Errorf("%s: %d", name, res.StatusCode)
		} else if s.breaks.Load() != 1 {
			t.Errorf("%s: %v, and the server is not suspected", name, err)
		}
		l.Close()
	}
}

func TestDirectInforms(t *testing.T) {
	s := newSocket(t)
	s.serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		echo(w, r)
	})
	var hints []string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		hints = append(hints, fmt.Sprint(code, h.Get("Link")))
		return nil
	}})
	req, _ := http.NewRequestWithContext(ctx, "GET", "http://backend/a", nil)
	res, err := s.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "GET /a " || len(hints) != 1 || hints[0] != "103</a>" {
		t.Errorf("%q %q", body, hints)
	}
}

// A client that says less than it promised is told so; no server is.
func TestDirectShortBody(t *testing.T) {
	s := newSocket(t)
	s.serve(t, echo)
	req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://backend/a", io.NopCloser(strings.NewReader("x")))
	req.ContentLength = 10
	var body *BodyError
	if _, err := s.RoundTrip(req); !errors.As(err, &body) || s.dials.Load() != 0 || s.breaks.Load() != 0 {
		t.Errorf("%v; connected %d times", err, s.dials.Load())
	}
}

func TestDirectAtOnce(t *testing.T) {
	s := newSocket(t)
	s.serve(t, echo)
	var clients sync.WaitGroup
	for c := range 16 {
		clients.Go(func() {
			for i := range 50 {
				path := fmt.Sprintf("/%d/%d", c, i)
				res, err := s.try(t, "POST", path, "x")
				if err != nil {
					t.Error(err)
					return
				}
				if i%7 == 0 {
					res.Body.Close() // unread
					continue
				}
				if got, _ := io.ReadAll(res.Body); string(got) != "POST "+path+" x" {
					t.Errorf("%s: %q", path, got)
				}
				res.Body.Close()
			}
		})
	}
	clients.Wait()
}

func TestDirectClosesOld(t *testing.T) {
	s := newSocket(t)
	s.serve(t, echo)
	s.want(t, "GET", "/a", "", 200, "GET /a ")
	old := s.idle[0]
	old.since = old.since.Add(-s.idleTimeout)
	s.closeOld()
	if len(s.idle) != 0 || s.reap != nil || alive(old.Conn) {
		t.Error("it is still open")
	}
}
