package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// named has the only endpoint of u at a name with these addresses.
func named(u *Upstream, port string, addresses func() []string) {
	u.SetEndpoints(At(net.JoinHostPort("server.test", port)))
	u.endpoints[0].ways.lookup = func(_ context.Context, host string) ([]string, error) {
		if list := addresses(); list != nil && host == "server.test" {
			return list, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
}

// local starts an endpoint on each of some addresses of this machine, all on one
// port.
func local(t *testing.T, hosts ...string) (port string) {
	t.Helper()
	for _, host := range hosts {
		n := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, host) })
		if port == "" {
			port = "0"
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			t.Skip(err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go relayTo(conn, n.Listener.Addr().String())
			}
		}()
		t.Cleanup(func() { l.Close() })
	}
	return port
}

func relayTo(conn net.Conn, address string) {
	defer conn.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { _, _ = io.Copy(to, conn); to.Close() }()
	_, _ = io.Copy(conn, to)
}

// The addresses of a name are looked up for every connection, and all of them get
// some.
func TestAddressesOfAName(t *testing.T) {
	port := local(t, "127.0.0.1", "127.0.0.2")
	addresses := []string{"127.0.0.1", "127.0.0.2"}
	u := over(t, turns(), At("127.0.0.1:1")...)
	named(u, port, func() []string { return append([]string(nil), addresses...) })
	fresh := func() string {
		u.endpoints[0].ways.renew()
		got := send(t, u, short, "GET", "")
		if got.err != nil {
			t.Fatal(got.err)
		}
		return got.body
	}
	seen := map[string]int{}
	for range 64 {
		seen[fresh()]++
	}
	if len(seen) != 2 {
		t.Errorf("of 64 connections: %v", seen)
	}
	addresses = []string{"127.0.0.2", "127.0.0.77"} // where nobody listens
	for range 16 {
		if got := fresh(); got != "127.0.0.2" {
			t.Fatalf("it moved, and %s is asked", got)
		}
	}
	addresses = nil
	u.endpoints[0].ways.renew()
	if got := send(t, u, short, "GET", ""); !IsUntaken(got.err) || !strings.Contains(got.err.Error(), "server.test") {
		t.Errorf("without an address: %v", got.err)
	}
	addresses = []string{"127.0.0.77", "127.0.0.78"}
	if got := send(t, u, short, "GET", ""); !errors.Is(got.err, syscall.ECONNREFUSED) {
		t.Errorf("where nobody listens: %v", got.err)
	}
}

// deaf is an address of this machine where connections are never made: whoever
// listens there has as many waiting as may be.
func deaf(t *testing.T, host string, port int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: netip.MustParseAddr(host).As4(), Port: port}); err != nil {
		t.Skip(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	for range 16 {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, strconv.Itoa(port)), 200*time.Millisecond)
		if err != nil {
			return
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Skip("it takes any number of connections")
}

// An address that does not answer delays a connection by its head start, and then it
// comes last.
func TestSilentAddress(t *testing.T) {
	port := local(t, "127.0.0.1")
	number, _ := strconv.Atoi(port)
	deaf(t, "127.0.0.3", number)
	u := over(t, turns(), At("127.0.0.1:1")...)
	named(u, port, func() []string { return []string{"127.0.0.3", "127.0.0.1"} })
	waited := 0
	for range 40 {
		u.endpoints[0].ways.renew()
		began := time.Now()
		if got := send(t, u, short, "GET", ""); got.code != 200 || time.Since(began) > turns().Connect/2 {
			t.Fatal(got.err, time.Since(began))
		}
		if time.Since(began) >= headStart {
			waited++
		}
	}
	if n := &u.endpoints[0].ways.names; waited == 0 || len(n.avoided) != 1 {
		t.Errorf("%d of 40 connections waited, %d addresses come last", waited, len(n.avoided))
	}
}
