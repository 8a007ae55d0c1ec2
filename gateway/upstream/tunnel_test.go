package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// switching is the answer of a server that leaves HTTP.
const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"

// A request that leaves HTTP gets the connection, in both directions.
func TestTunnel(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tls", "unix"} {
		n := startNode(t, network, func(w http.ResponseWriter, _ *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			io.WriteString(conn, switching)
			line, _ := rw.ReadString('\n')
			io.WriteString(conn, line)
		})
		u := over(t, turns(), n.endpoint())
		req := newRequest(t.Context(), "GET", "/exec", nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		res, err := u.Upgrade().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		conn, ok := res.Body.(io.ReadWriteCloser)
		if !ok || res.StatusCode != 101 || u.Status().Endpoints[0].Active != 1 {
			t.Fatalf("%d %T", res.StatusCode, res.Body)
		}
		io.WriteString(conn, "hello\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
			t.Errorf("%q %v", line, err)
		}
		conn.Close()
		if s := u.Status(); s.Endpoints[0].Active != 0 {
			t.Error("it is never over")
		}
		if got := send(t, u, short, "GET", "", "Connection", "Upgrade", "Upgrade", "echo"); !errors.Is(got.err, ErrSwitched) {
			t.Errorf("the protocol was switched: %d %v", got.code, got.err)
		}
	}
}

// Bytes beyond an answer that are still in a TLS record are not taken for the next
// answer.
func TestSurplusBelowTLS(t *testing.T) {
	t.Parallel()
	// In one record, and read past the buffer above TLS.
	const length = 12_000
	e, requests := rough(t, false, func(c net.Conn) {
		io.WriteString(c, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", length)+
			strings.Repeat("x", length)+"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
		_, _ = io.Copy(io.Discard, c)
	})
	u := over(t, turns(), e)
	for range 3 {
		req := newRequest(t.Context(), "GET", "/", nil)
		res, err := u.Short().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 2*length)
		n, err := io.ReadFull(res.Body, b)
		if n != length || err != io.ErrUnexpectedEOF {
			t.Errorf("%.20q %v", b[:n], err)
		}
		res.Body.Close()
	}
	if n := requests.Load(); n != 3 {
		t.Errorf("the server saw %d requests, want 3", n)
	}
}
