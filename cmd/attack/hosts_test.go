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
	for _, tc := range []struct {
		host string
		code int
	}{
		{"localhost", 200}, {"localhost:6443", 200}, {"[::1]:6443", 200}, {"gateway.portico.svc", 200},
		{"localhost/mallory?", 400}, {"mallory@localhost", 400}, {"localhost?mallory", 400}, {"localhost#mallory", 400}, {"localhost,mallory", 400},
		{"localhost:mallory", 400}, {"[::1]mallory", 400}, {"[fe80::1%/mallory]", 400}, {"localhost%2fmallory", 400}, {`localhost\mallory`, 400},
	} {
		path := s.root() + "/x"
		for protocol, a := range map[string]answer{
			http1: target.send(t, jane, "GET", fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, tc.host)),
			http2: target.sendStream(t, jane, stream{header: []field{{":method", "GET"}, {":scheme", "https"}, {":authority", tc.host}, {":path", path}}}),
			// The host of an absolute target takes the place of Host (RFC 9112, 3.2.2).
			"absolute": target.send(t, jane, "GET", fmt.Sprintf("GET https://%s%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", tc.host, path)),
		} {
			seen := s.take(t)
			if protocol == "absolute" && strings.ContainsAny(tc.host, "/?#@") {
				continue // it is another target
			}
			if err := a.among(tc.code); err != nil {
				t.Errorf("%q, %s: answered %v, want %d", tc.host, protocol, err, tc.code)
			}
			if reached := len(seen) == 1 && seen[0].header.Get("X-Forwarded-Host") == tc.host; reached != (tc.code == 200) || len(seen) > 1 {
				t.Errorf("%q, %s: the server saw %v", tc.host, protocol, seen)
			}
		}
	}
}
