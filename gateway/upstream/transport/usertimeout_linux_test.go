package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forget has the kernel drop all that comes on a connection, as a firewall does that has
// forgotten it: nothing is acknowledged.
func forget(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*tls.Conn).NetConn().(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	nothing := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// A request on a connection that is dead without notice fails after some seconds, as
// stale, and takes all others with it that were idle.
func TestForgottenConnection(t *testing.T) {
	t.Parallel()
	accepted := make(chan net.Conn, 16)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted <- conn
		}
	}
	server.StartTLS()
	defer server.Close()
	e := newCounted(t, "tcp", server.Listener.Addr().String(), trustOf(server))
	p := e.http1(t)
	if p.silence != silence {
		t.Errorf("the kernel has %v", p.silence)
	}
	p.silence = 500 * time.Millisecond
	if _, err := e.get(t, shortPath); err != nil {
		t.Fatal(err)
	}
	forget(t, <-accepted)
	began := time.Now()
	var stale *StaleError
	if _, err := e.get(t, shortPath); !errors.As(err, &stale) || !isUnacknowledged(err) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("it took %v: the connection was not forgotten", took)
	}
	if _, err := e.get(t, shortPath); err != nil {
		t.Error(err)
	}
}

// The time to acknowledge is not for large bodies, which may wait for room.
func TestUserTimeout(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, want := range []time.Duration{silence, 0} {
		setUserTimeout(conn, want)
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			if err != nil || got != int(want.Milliseconds()) {
				t.Errorf("the kernel has %d ms, %v; want %v", got, err, want)
			}
		})
	}
}
