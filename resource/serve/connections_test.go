package serve

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/fairshare"
	"portico/resource/serve/inflight"
)

// connecting is a server on TCP with limits for connections, and a function that connects to
// it.
func connecting(t *testing.T, unauthenticated, users, idle int, h http.HandlerFunc) (*testServer, func() *tls.Conn) {
	t.Helper()
	p := newPKI(t)
	s := newTestServer(t, h, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{p.listen()}
		c.Connections = inflight.ConnectionLimits{Unauthenticated: unauthenticated, Users: fairshare.New(users, 0), Idle: idle}
	})
	s.start(t)
	return s, func() *tls.Conn {
		conn, err := tls.Dial("tcp", s.Addresses()[0].String(), p.tlsConfig())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

// asks sends a request on a connection and returns the status of the response.
func asks(t *testing.T, conn net.Conn, path, user string, groups ...string) int {
	t.Helper()
	r, err := http.NewRequest("GET", path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host, r.Header = "x", http.Header{"User": {user}, "Group": groups}
	if err := r.Write(conn); err != nil {
		t.Fatalf("%s %s: %v", user, path, err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s %s: %v", user, path, err)
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// open returns how many quiet connections the server has left open.
func open(t *testing.T, conns ...net.Conn) (n int) {
	t.Helper()
	deadline := time.Now().Add(50 * time.Millisecond)
	for _, conn := range conns {
		_ = conn.SetReadDeadline(deadline)
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			n++
		}
	}
	return n
}

// Connections that send nothing make room for others, and those of users stay.
func TestUnauthenticatedConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	const limit = 4
	s, dial := connecting(t, limit, 100, 100, ok)
	jane := dial()
	if code := asks(t, jane, "/", "jane"); code != 200 {
		t.Fatal(code)
	}
	var quiet []net.Conn
	for range 2 * limit {
		conn, err := net.Dial("tcp", s.Addresses()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		quiet = append(quiet, conn)
	}
	began := time.Now()
	if code := asks(t, dial(), "/", "john"); code != 200 {
		t.Errorf("a later user got %d", code)
	}
	await.Bar(t, "the answer to a later user", time.Since(began), 20*time.Second)
	if n := open(t, quiet...); n > limit {
		t.Errorf("%d quiet connections are open, want %d at most", n, limit)
	}
	if code := asks(t, jane, "/", "jane"); code != 200 {
		t.Errorf("an earlier user got %d", code)
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
	if code := asks(t, refused, "/", "jane"); code != 429 || open(t, refused) != 0 {
		t.Errorf("one connection too many: got %d", code)
	}
	if code := asks(t, dial(), "/", "john"); code != 200 {
		t.Errorf("another user: got %d", code)
	}
	for range 5 {
		if code := asks(t, dial(), "/", "jane", resource.GroupMasters); code != 200 {
			t.Errorf("an administrator: got %d", code)
		}
	}
	close(release)
	for range 6 {
		if code := <-done; code != 200 {
			t.Error(code)
		}
	}
	if code := asks(t, dial(), "/", "jane"); code != 429 {
		t.Errorf("one connection more than the six that are kept: got %d", code)
	}
	if n := s.chain.Connections().Users().InUse(); n < 6+1+5 {
		t.Errorf("%d connections are counted", n)
	}
}

// Of a user's idle connections the one that has been idle for longest is closed.
func TestIdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s, dial := connecting(t, 100, 100, 4, ok)
	connections := s.chain.Connections()
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(await.Patience()); !done(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d connections, %d idle", what, connections.Users().InUse(), connections.Idle())
			}
		}
	}
	var conns []net.Conn
	for range 5 {
		conn := dial()
		if code := asks(t, conn, "/", "jane"); code != 200 {
			t.Fatal(code)
		}
		conns = append(conns, conn)
		// The server counts it as idle after it has answered.
		until("after a response", func() bool { return connections.Idle() >= min(len(conns), 3) })
	}
	if n := open(t, conns...); n != 3 || open(t, conns[4]) != 1 {
		t.Errorf("%d idle connections are open, want 3, the last one among them", n)
	}
	for _, conn := range conns {
		conn.Close()
	}
	until("after the end", func() bool { return connections.Users().InUse() == 0 && connections.Idle() == 0 })
}

// Connections beyond those of one address are closed and counted; one that ends makes room.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	s := newTestServer(t, ok, func(c *testConfig) {
		c.Server.Listen = []ListenAddress{p.listen()}
		c.Connections = inflight.ConnectionLimits{Unauthenticated: 10, Users: fairshare.New(10, 0), Idle: 10, PerAddress: 2}
	})
	s.start(t)
	address := s.Addresses()[0].String()
	first, err := tls.Dial("tcp", address, p.tlsConfig())
	if err != nil {
		t.Fatal(err)
	}
	second, err := tls.Dial("tcp", address, p.tlsConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if code := asks(t, first, "/", "jane"); code != 200 {
		t.Fatal(code)
	}
	if third, err := tls.Dial("tcp", address, p.tlsConfig()); err == nil {
		third.Close()
		t.Error("a third connection was accepted")
	}
	if n := s.chain.Connections().Rejected(); n != 1 {
		t.Errorf("%d connections were counted as rejected", n)
	}
	first.Close()
	await.Until(t, "room for another connection", func() bool {
		conn, err := tls.Dial("tcp", address, p.tlsConfig())
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}
