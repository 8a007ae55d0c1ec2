package testtools

import (
	"net"
	"os"
	"slices"
	"testing"
)

// Each kind of listener of a process is found by its address, abstract unix
// sockets included; connections are not listeners.
func TestListeners(t *testing.T) {
	t.Parallel()
	var want []Listener
	for _, l := range []struct{ network, address string }{
		{"tcp", "127.0.0.1:0"}, {"unix", t.TempDir() + "/s"}, {"unix", "@portico-test-listeners"},
	} {
		listener, err := net.Listen(l.network, l.address)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		conn, err := net.Dial(l.network, listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		want = append(want, Listener{l.network, listener.Addr().String()})
	}
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	want = append(want, Listener{"udp", packets.LocalAddr().String()})

	got, err := Listeners(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range want {
		if n := len(slices.DeleteFunc(slices.Clone(got), func(g Listener) bool { return g != l })); n != 1 {
			t.Errorf("%v is there %d times in %v", l, n, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The process that dialed a connection is found by its addresses, among others, and nothing is
// found for the other end of it. Not parallel: TestListeners counts the listeners of the process.
func TestDialed(t *testing.T) {
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
	from, to := conn.LocalAddr().String(), conn.RemoteAddr().String()
	if pid, err := Dialed(from, to, []int{os.Getppid(), os.Getpid()}); err != nil || pid != os.Getpid() {
		t.Errorf("got %d, %v", pid, err)
	}
	if pid, err := Dialed(from, to, []int{os.Getppid()}); err != nil || pid != 0 {
		t.Errorf("of another process: got %d, %v", pid, err)
	}
}
