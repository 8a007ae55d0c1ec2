package upstream

import (
	"crypto/x509"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
)

const (
	shortPath = "/apis/g.example.com/v1/things"
	watchPath = shortPath + "?watch=true"
)

// counted is an Upstream that counts the calls of Broken.
type counted struct {
	*Upstream
	broken atomic.Int32
}

// countedOf returns an Upstream of the TLS server at an address.
func countedOf(t *testing.T, address string, how Trust) *counted {
	t.Helper()
	c := &counted{}
	c.Upstream = New(Config{
		Base: &url.URL{Scheme: "https", Host: "api.ns.svc:443"}, Endpoints: At(address), Trust: how, Policy: turns(),
		Broken: func(string) { c.broken.Add(1) },
	})
	t.Cleanup(c.Close)
	return c
}

// fixed are roots that stay as they are.
func fixed(pool *x509.CertPool) func() *x509.CertPool {
	return func() *x509.CertPool { return pool }
}

// closedPort returns an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// ParseURL accepts unix, https and http URLs without user, path and query.
func TestParseURL(t *testing.T) {
	for text, want := range map[string][3]string{
		"unix:///run/core.sock":   {"http://core", "unix", "/run/core.sock"},
		"https://10.0.0.1:6444":   {"https://10.0.0.1:6444", "tcp", "10.0.0.1:6444"},
		"https://api.example.com": {"https://api.example.com", "tcp", "api.example.com:443"},
		"http://[::1]/":           {"http://[::1]", "tcp", "[::1]:80"},
	} {
		e, err := ParseURL("core", text)
		if err != nil || [3]string{e.Base.String(), e.Network, e.Address} != want || e.URL != text || e.Weight != 1 {
			t.Errorf("%s: %+v %v", text, e, err)
		}
	}
	for _, text := range []string{"", "ftp://a:80", "unix://", "unix://a/b", "10.0.0.1:80", "https://", ":", "https://u@a", "https://a/b", "https://a?b"} {
		if _, err := ParseURL("core", text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
