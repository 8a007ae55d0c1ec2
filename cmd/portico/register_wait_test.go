package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A certificate that is not trusted is told with the flag that makes it so. The
// texts are those of real handshakes.
func TestRegisterAdvice(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	trusted := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	for name, tc := range map[string]struct {
		config *tls.Config
		want   string
	}{
		"nobody vouches": {&tls.Config{RootCAs: x509.NewCertPool()}, "--ca-file"},
		"another name":   {&tls.Config{RootCAs: trusted, ServerName: "another.internal"}, "--server-name"},
		"another IP":     {&tls.Config{RootCAs: trusted, ServerName: "192.0.2.1"}, "--server-name"},
	} {
		_, err := tls.Dial("tcp", server.Listener.Addr().String(), tc.config)
		if err == nil {
			t.Fatalf("%s: it is trusted", name)
		}
		if got := advice("x", err.Error()); !strings.Contains(got, tc.want) {
			t.Errorf("%s: %v: %s, want %s", name, err, got, tc.want)
		}
	}
	if got := advice("x", "connection refused"); got != "see: portico backends x" {
		t.Errorf("nobody there: %s", got)
	}
}
