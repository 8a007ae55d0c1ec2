package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/rest/body"
	"portico/resource/serve/filter"
)

const seriesClients = `apiserver_current_inflight_requests{request_kind="client"}`

// byName is a FlowControl with seats for all requests, in levels by the names of users: that of
// "a-1" is a, and that of "exempt" limits nothing.
type byName struct{ released atomic.Int64 }

func (f *byName) Classify(a *resource.Action) string {
	level, _, _ := strings.Cut(a.User.Name, "-")
	if level == "exempt" {
		return ""
	}
	return level
}

func (f *byName) Admit(_ *http.Request, a *resource.Action) filter.Admission {
	return filter.Admission{Schema: "s", Level: "l", Limited: f.Classify(a), Seats: f}
}

func (f *byName) Release() { f.released.Add(1) }
func (f *byName) End()     {}

// withClients is a server in which four requests of a level may wait for their clients.
func withClients(t *testing.T, h http.HandlerFunc) (*testServer, *byName) {
	t.Helper()
	flow := &byName{}
	s := newTestServer(t, h, func(c *testConfig) {
		c.MaxInFlight, c.MaxMutatingInFlight, c.FlowControl = 2, 2, flow
		c.SentOn = func(a *resource.Action) bool { return strings.HasPrefix(a.Path, "/sent") }
	})
	s.start(t)
	return s, flow
}

// begin sends the header of a POST of five bytes on a new connection.
func begin(t *testing.T, s *testServer, user string) net.Conn {
	t.Helper()
	conn := s.dial(t)
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: x\r\nUser: %s\r\nContent-Length: 5\r\n\r\n", user); err != nil {
		t.Fatal(err)
	}
	return conn
}

// answerOn reads a response.
func answerOn(t *testing.T, in *bufio.Reader) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(text)
}

// waitForClients returns when n requests of the level that has most wait for their clients.
func waitForClients(t *testing.T, s *testServer, n int) {
	t.Helper()
	want := fmt.Sprint(seriesClients, " ", n)
	await.Until(t, want, func() bool { got := scrape(s, seriesClients); return len(got) == 1 && got[0] == want })
}

// Requests whose bodies do not come take slots of their level only, and none in an exempt one. If all
// are taken, one of the user with most is ended for a request of another user, with a 429, and with its
// connection.
func TestAwaitedBodies(t *testing.T) {
	t.Parallel()
	s, _ := withClients(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	var waiting []net.Conn
	for n, user := range []string{"a-1", "a-1", "a-1", "a-2"} {
		waiting = append(waiting, begin(t, s, user))
		waitForClients(t, s, n+1)
	}
	for _, user := range []string{"b-1", "exempt", "a-3"} {
		conn := begin(t, s, user)
		in := bufio.NewReader(conn)
		for range 2 { // what bounds a body does not hold for the next request
			if _, err := io.WriteString(conn, "hello"); err != nil {
				t.Fatal(err)
			}
			if res, text := answerOn(t, in); res.StatusCode != http.StatusOK || text != "hello" {
				t.Errorf("%s: %d %q", user, res.StatusCode, text)
			}
			_, _ = fmt.Fprintf(conn, "POST /x HTTP/1.1\r\nHost: x\r\nUser: %s\r\nContent-Length: 5\r\n\r\n", user)
		}
		conn.Close()
	}
	in := bufio.NewReader(waiting[0])
	res, text := answerOn(t, in)
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || !res.Close {
		t.Errorf("the request that waited longest: %d %v %s", res.StatusCode, res.Header, text)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("its connection: %v", err)
	}
	for n, conn := range waiting[1:] {
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		if res, text := answerOn(t, bufio.NewReader(conn)); res.StatusCode != http.StatusOK || text != "hello" {
			t.Errorf("request %d: %d %q", n+1, res.StatusCode, text)
		}
	}
	waitForClients(t, s, 0)
}

// The handler of a request for another server runs when a small body has arrived, and gets the body from memory. It
// runs at once if the body is large.
func TestSmallBodiesForServers(t *testing.T) {
	t.Parallel()
	var inMemory []bool
	s, _ := withClients(t, func(w http.ResponseWriter, r *http.Request) {
		inMemory = append(inMemory, r.GetBody != nil)
		filter.ReleaseInFlight(r.Context())
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	conn := s.dial(t)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, size := range []int{5, body.MaxSmall, body.MaxSmall + 1} {
		fmt.Fprintf(conn, "POST /sent HTTP/1.1\r\nHost: x\r\nUser: a-1\r\nContent-Length: %d\r\n\r\n", size)
		if size <= body.MaxSmall {
			waitForClients(t, s, 1)
		}
		if _, err := io.WriteString(conn, strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
		if res, text := answerOn(t, in); res.StatusCode != http.StatusOK || text != fmt.Sprint(size) {
			t.Errorf("%d bytes: %d %q", size, res.StatusCode, text)
		}
	}
	if want := []bool{true, true, false}; !slices.Equal(inMemory, want) {
		t.Errorf("in memory: %v, want %v", inMemory, want)
	}
	waitForClients(t, s, 0)
}

// Responses that are not read hold a slot of their level instead of seats. If all are taken, one of
// the user with most is cut for that of another one.
func TestResponsesThatAreNotRead(t *testing.T) {
	t.Parallel()
	const size = 16 << 20
	s, flow := withClients(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		piece := make([]byte, 64<<10)
		for range size / len(piece) {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	})
	get := func(user string) net.Conn {
		conn := s.dial(t)
		t.Cleanup(func() { conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: x\r\nUser: %s\r\n\r\n", user); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	var conns []net.Conn
	for n := range 4 {
		conns = append(conns, get("a-1"))
		waitForClients(t, s, n+1)
	}
	last := get("a-2")
	await.Until(t, "five requests have released their seats", func() bool { return flow.released.Load() == 5 })
	for n, conn := range append(conns, last) {
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		read, err := io.Copy(io.Discard, res.Body)
		if whole := err == nil && read == size; whole != (n > 0) {
			t.Errorf("response %d: %d bytes, %v", n, read, err)
		}
	}
	waitForClients(t, s, 0)
}
