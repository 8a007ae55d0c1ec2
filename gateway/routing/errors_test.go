package routing

import (
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Parts of errors that differ each time are removed.
func TestStableText(t *testing.T) {
	t.Parallel()
	const expired = "certificate has expired or is not yet valid: current time"
	for _, tc := range [][2]string{
		{"connect: connection refused", "connect: connection refused"},
		{`Get "https://a:443/apis": read tcp 10.0.0.1:4711->10.0.0.2:443: reset`, `Get "https://a:443/apis": read tcp 10.0.0.2:443: reset`},
		{"read tcp [::1]:4711->[::1]:443: reset", "read tcp [::1]:443: reset"},
		{"read unix @->/run/a.sock: reset", "read unix /run/a.sock: reset"},
		{expired + " 2026-01-02T03:04:05Z is after 2026-01-01T00:00:00Z", expired + " is after 2026-01-01T00:00:00Z"},
		{expired + " 2026-01-02T03:04:05+01:00 is before 2027-01-01T00:00:00Z", expired + " is before 2027-01-01T00:00:00Z"},
		{`broken: malformed HTTP response "\x00a \"b\" 17" after`, "broken: malformed HTTP response after"},
		{`malformed HTTP status code "abc"`, "malformed HTTP status code"},
		{"stream error: stream ID 45; FLOW_CONTROL_ERROR", "stream error: FLOW_CONTROL_ERROR"},
		{"net/http: malformed MIME header line: at 12:00:01\nand so on", "net/http: malformed MIME header line"},
		{strings.Repeat("x", MaxErrorText), strings.Repeat("x", MaxErrorText)},
		{strings.Repeat("x", MaxErrorText-1) + "ä", strings.Repeat("x", MaxErrorText-1) + "..."},
	} {
		if got := StableText(tc[0]); got != tc[1] {
			t.Errorf("%q:\ngot  %q\nwant %q", tc[0], got, tc[1])
		}
	}
}

// Times are removed from the errors of the standard library, which remain in the chain.
func TestStableErrors(t *testing.T) {
	t.Parallel()
	if stable(nil) != nil {
		t.Error("no error became one")
	}
	s := httptest.NewTLSServer(nil)
	defer s.Close()
	certificate := s.Certificate()
	look := func(after time.Duration) error {
		_, err := certificate.Verify(x509.VerifyOptions{Roots: x509.NewCertPool(), CurrentTime: certificate.NotAfter.Add(after)})
		return err
	}
	if a, b := stable(look(time.Second)), stable(look(time.Minute)); a.Error() != b.Error() || !strings.Contains(a.Error(), "expired") {
		t.Errorf("%v\n%v", a, b)
	}
	refused := stable(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED})
	if !errors.Is(refused, syscall.ECONNREFUSED) {
		t.Error("a refused connection is not one any more")
	}
}
