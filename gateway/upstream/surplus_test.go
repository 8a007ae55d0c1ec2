package upstream

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// What a server sends beyond a response is not taken for the next one.
func TestDirectSurplus(t *testing.T) {
	const evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	for name, c := range map[string]struct{ method, answer string }{
		"after a length":    {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + evil},
		"after chunks":      {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + evil},
		"length and chunks": {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 51\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n" + evil},
		"after HEAD":        {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 43\r\n\r\n" + evil},
		"after 204":         {"GET", "HTTP/1.1 204 No Content\r\n\r\n" + evil},
		"after 304":         {"GET", "HTTP/1.1 304 Not Modified\r\n\r\n" + evil},
		"204 with a length": {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 43\r\n\r\n"},
		"204 with chunks":   {"GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n"},
		"empty":             {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + evil},
	} {
		s := newSocket(t)
		l, err := net.Listen("unix", s.path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for i := 0; ; i++ {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					b := make([]byte, 4096)
					for first := i == 0; ; first = false {
						if _, err := conn.Read(b); err != nil {
							return
						}
						switch {
						case first:
							io.WriteString(conn, c.answer)
						case i == 0:
							io.WriteString(conn, evil)
						default:
							io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
						}
					}
				}()
			}
		}()
		res, err := s.try(t, c.method, "/", "")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if body, err := io.ReadAll(res.Body); err != nil || strings.Contains(string(body), "evil") {
			t.Errorf("%s: %q, %v", name, body, err)
		}
		res.Body.Close()
		s.want(t, "GET", "/", "", 200, "good")
		l.Close()
	}
}

// A header that Write would make another one of is refused, as http.Transport
// does.
func TestDirectRefusesBadHeaders(t *testing.T) {
	s := newSocket(t)
	s.serve(t, echo)
	for name, value := range map[string]string{"X-Remote-Group": "a\r\nX-Remote-User: root", "X y": "z", "Good": "\x00"} {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://backend/", nil)
		req.Header[name] = []string{value}
		before := s.indirect.Load()
		if _, err := s.RoundTrip(req); err != nil || s.indirect.Load() != before+1 || s.dials.Load() != 0 {
			t.Errorf("%s: %q went directly, %v", name, value, err)
		}
	}
}
