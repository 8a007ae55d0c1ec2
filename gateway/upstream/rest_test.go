package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// closesSecond answers the first request on each connection, and closes it when the
// second one comes.
func closesSecond(t *testing.T) Endpoint {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				if _, err := http.ReadRequest(in); err != nil {
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				_, _ = http.ReadRequest(in)
			}()
		}
	}()
	at := l.Addr().String()
	return Endpoint{URL: "http://" + at, Network: "tcp", Address: at, Weight: 1, Base: mustParse("http://" + at)}
}

// A kept connection that turns out to be dead is no failure, whichever way the
// request goes: there is another connection for it.
func TestKeptConnectionIsDead(t *testing.T) {
	p := turns()
	p.Retries.MinPerSecond = 100 // the server has read what it does not answer
	for _, method := range []string{"GET", "OPTIONS"} {
		u := over(t, p, closesSecond(t))
		for i := range 5 {
			if got := send(t, u, short, method, ""); got.code != 200 || got.err != nil {
				t.Errorf("%s, request %d: %d, %v", method, i, got.code, got.err)
			}
		}
		if s := u.Status().Endpoints[0]; s.Errors != 0 {
			t.Errorf("%s: %+v", method, s)
		}
	}
}
