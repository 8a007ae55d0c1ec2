package serve

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"portico/resource"
	"portico/resource/fairshare"
	"portico/resource/serve/inflight"
)

// connecting is a server on TCP with bounds for connections, whose clients are the user
// that their header User names, of the group that Group names.
func connecting(t *testing.T, strangers, users, idle int, h http.HandlerFunc) (*testServer, func() *tls.Conn) {
	t.Helper()
	p := newPKI(t)
	s := newTestServer(t, h, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{p.listen()}
		c.Authenticator = namedInGroup{}
		c.Connections = inflight.ConnectionLimits{Unauthenticated: strangers, Users: fairshare.New(users, 0), Idle: idle}
	})
	run(t, s)
	return s, func() *tls.Conn {
		conn, err := tls.Dial("tcp", s.Addresses()[0].String(), &tls.Config{RootCAs: p.pool})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// namedInGroup authenticates the user and group in the headers User and Group; none without them.
type namedInGroup struct{}

func (namedInGroup) Authenticate(r *http.Request) (*resource.User, bool, error) {
	if r.Header.Get("User") == "" {
		return nil, false, errors.New("no user")
	}
	return &resource.User{Name: r.Header.Get("User"), Groups: r.Header["Group"]}, true, nil
}

// asks sends a request on a connection and returns the status of the answer.
func asks(t *testing.T, conn net.Conn, path, user string, groups ...string) int {
	t.Helper()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nUser: %s\r\n", path, user)
	for _, g := range groups {
		fmt.Fprintf(conn, "Group: %s\r\n", g)
	}
	_, _ = io.WriteString(conn, "\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", user, path, err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// isOpen reports whether the server has left a quiet connection open.
func isOpen(t *testing.T, conn net.Conn) bool {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// Connections that say nothing make room for others, and those of users stay.
func TestUnauthenticatedConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s, dial := connecting(t, 8, 100, 100, ok)
	jane := dial()
	if code := asks(t, jane, "/", "jane"); code != 200 {
		t.Fatal(code)
	}
	var quiet []net.Conn
	for range 32 {
		conn, err := net.Dial("tcp", s.Addresses()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		quiet = append(quiet, conn)
	}
	begun := time.Now()
	if code := asks(t, dial(), "/", "john"); code != 200 {
		t.Errorf("a user that comes later: %d", code)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("a user that comes later is answered after %v", took)
	}
	open := 0
	for _, conn := range quiet {
		if isOpen(t, conn) {
			open++
		}
	}
	if open > 8 {
		t.Errorf("%d quiet connections are open, want 8 at most", open)
	}
	if code := asks(t, jane, "/", "jane"); code != 200 {
		t.Errorf("a user that was there before: %d", code)
	}
}

// A user has a share of the connections, and another one is let in.
func TestConnectionsOfOneUserAreBounded(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	s, dial := connecting(t, 100, 8, 100, func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/block") {
			entered <- struct{}{}
			<-release
		}
	})
	done := make(chan int)
	for range 6 {
		conn := dial()
		go func() { done <- asks(t, conn, "/block", "jane") }()
		<-entered
	}
	refused := dial()
	if code := asks(t, refused, "/", "jane"); code != 429 || isOpen(t, refused) {
		t.Errorf("one connection too many: %d", code)
	}
	if code := asks(t, dial(), "/", "john"); code != 200 {
		t.Errorf("another user: %d", code)
	}
	for range 5 {
		if code := asks(t, dial(), "/", "jane", resource.GroupMasters); code != 200 {
			t.Errorf("an administrator: %d", code)
		}
	}
	close(release)
	for range 6 {
		if code := <-done; code != 200 {
			t.Error(code)
		}
	}
	if code := asks(t, dial(), "/", "jane"); code != 429 {
		t.Errorf("six connections are kept, and one more is %d", code)
	}
	if n := s.chain.Connections().Users().InUse(); n < 6+1+5 {
		t.Errorf("%d connections are counted", n)
	}
}

// Of a user's idle connections the one is ended that has been idle for longest.
func TestIdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s, dial := connecting(t, 100, 100, 4, ok)
	var conns []net.Conn
	for range 5 {
		conn := dial()
		if code := asks(t, conn, "/", "jane"); code != 200 {
			t.Fatal(code)
		}
		conns = append(conns, conn)
		// The server takes down that it is idle after it has answered.
		for s.idleConnections() < min(len(conns), 3) {
			time.Sleep(time.Millisecond)
		}
	}
	open := 0
	for _, conn := range conns {
		if isOpen(t, conn) {
			open++
		}
	}
	if open != 3 || !isOpen(t, conns[4]) {
		t.Errorf("%d idle connections are open, want 3, the last one among them", open)
	}
	for _, conn := range conns {
		conn.Close()
	}
	for deadline := time.Now().Add(10 * time.Second); s.chain.Connections().Users().InUse() > 0; {
		if time.Now().After(deadline) {
			t.Fatalf("%d closed connections are counted", s.chain.Connections().Users().InUse())
		}
		time.Sleep(time.Millisecond)
	}
	if n := s.idleConnections(); n != 0 {
		t.Errorf("%d closed connections are counted as idle", n)
	}
}

func (s *testServer) idleConnections() int { return s.chain.Connections().Idle() }
