package attack

import (
	"fmt"
	"strings"
	"testing"
)

// A host with more than a name and a port is refused, over HTTP/1.1 and HTTP/2, and reaches no server as X-Forwarded-Host.
func TestHosts(t *testing.T) {
	t.Parallel()
	s := register(t, "hosts.example.com", http1)
	_, jane := s.jane(t, "a", things(s.group))
	path := s.root() + "/x"
	protocols := []struct {
		name string
		send func(host string) answer
	}{
		{http1, func(host string) answer {
			return target.send(t, jane, "GET", fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host))
		}},
		{http2, func(host string) answer {
			return target.sendStream(t, jane, stream{header: []field{{":method", "GET"}, {":scheme", "https"}, {":authority", host}, {":path", path}}})
		}},
		// The host of an absolute target takes the place of Host (RFC 9112, 3.2.2).
		{"absolute", func(host string) answer {
			return target.send(t, jane, "GET", fmt.Sprintf("GET https://%s%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", host, path))
		}},
	}
	for _, tc := range []struct {
		host  string
		codes []int
	}{
		{"localhost", passed}, {"localhost:6443", passed}, {"[::1]:6443", passed}, {"gateway.portico.svc", passed},
		{"localhost/mallory?", refused}, {"mallory@localhost", broken}, {"localhost?mallory", refused}, {"localhost#mallory", refused}, {"localhost,mallory", refused},
		{"localhost:mallory", refused}, {"[::1]mallory", refused}, {"[fe80::1%/mallory]", refused}, {"localhost%2fmallory", refused}, {`localhost\mallory`, refused},
	} {
		for _, protocol := range protocols {
			if protocol.name == "absolute" && strings.ContainsAny(tc.host, "/?#@") {
				continue // it is another target
			}
			a := protocol.send(tc.host)
			if err := a.among(tc.codes...); err != nil {
				t.Errorf("%q, %s: answered %v, want %v", tc.host, protocol.name, err, tc.codes)
			}
			seen := s.take(t)
			if reached := len(seen) == 1 && seen[0].header.Get("X-Forwarded-Host") == tc.host; reached != (tc.codes[0] == 200) || len(seen) > 1 {
				t.Errorf("%q, %s: the server saw %v", tc.host, protocol.name, seen)
			}
		}
	}
}
