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
		return nil, errors.New("no such host")
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
	if got := send(t, u, short, "GET", ""); !IsDialError(got.err) || !strings.Contains(got.err.Error(), "server.test") {
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

// An address that does not answer takes only its part of the time to connect.
func TestSilentAddress(t *testing.T) {
	port := local(t, "127.0.0.1")
	number, _ := strconv.Atoi(port)
	deaf(t, "127.0.0.3", number)
	p := turns()
	p.Connect = 2 * time.Second
	u := over(t, p, At("127.0.0.1:1")...)
	named(u, port, func() []string { return []string{"127.0.0.3", "127.0.0.1"} })
	waited := false
	for i := 0; i < 20 && !waited; i++ {
		u.endpoints[0].ways.renew()
		began := time.Now()
		if got := send(t, u, short, "GET", ""); got.code != 200 {
			t.Fatal(got.err)
		}
		waited = time.Since(began) > p.Connect/3
	}
	if !waited {
		t.Error("the silent one was never tried first")
	}
}
