package upstream

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// forget has a connection's kernel drop all that comes from its peer, as a
// firewall does that does not know it any more: nothing is acknowledged.
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

// A connection that is dead and does not say so costs a safe request some seconds,
// not all of its time, with a single endpoint too, and the others nothing.
func TestForgottenFlow(t *testing.T) {
	accepted := make(chan net.Conn, 16)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted <- conn
		}
	}
	server.StartTLS()
	defer server.Close()
	u := over(t, turns(), At(server.Listener.Addr().String())...)
	g, err := u.endpoints[0].ways.get()
	if err != nil {
		t.Fatal(err)
	}
	if g.direct.silence != silence {
		t.Errorf("the kernel has %v", g.direct.silence)
	}
	g.direct.silence = 500 * time.Millisecond
	if got := send(t, u, short, "GET", ""); got.code != 200 {
		t.Fatalf("%+v", got)
	}
	forget(t, <-accepted)
	began := time.Now()
	if got := send(t, u, short, "GET", ""); got.code != 200 {
		t.Fatalf("%+v", got)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("it took %v: the flow was not forgotten", took)
	}
	if len(accepted) != 1 {
		t.Errorf("%d more connections were made", len(accepted))
	}
}

// The time is not for what has to wait for room at the server.
func TestKernelsPatience(t *testing.T) {
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
		giveUpAfter(conn, want)
		raw, err := conn.(syscall.Conn).SyscallConn()
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
