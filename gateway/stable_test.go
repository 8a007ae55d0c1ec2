package gateway

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"portico/apiservice"
)

func TestStableText(t *testing.T) {
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
		{"net/http: malformed MIME header line: at 12:00:01\nand so on", "net/http: malformed MIME header line"},
		{strings.Repeat("x", maxErrorText), strings.Repeat("x", maxErrorText)},
		{strings.Repeat("x", maxErrorText-1) + "ä", strings.Repeat("x", maxErrorText-1) + "..."},
	} {
		if got := stableText(tc[0]); got != tc[1] {
			t.Errorf("%q:\ngot  %q\nwant %q", tc[0], got, tc[1])
		}
	}
}

// The library's own errors: what they say of time goes, what they are stays.
func TestStableErrors(t *testing.T) {
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

// A message that differs each time is written once a minute, and the last one
// in the end; whether the server is there, at once.
func TestMessagesArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "v1.widgets.example.com"
		g := newRegistry(t, widgets())
		verdict := func(c apiservice.Condition) (written bool) {
			before := g.storage.Revision()
			g.turn(t, map[string]apiservice.Condition{name: c})
			return g.storage.Revision() != before
		}
		failed := func(i int) apiservice.Condition {
			return apiservice.FailedDiscoveryCheck("u", fmt.Errorf("error %d", i))
		}
		g.turn(t, nil)
		if !verdict(failed(0)) {
			t.Fatal("that it failed is not written")
		}
		writes := 0
		for i := range 300 { // five minutes
			if verdict(failed(i + 1)) {
				writes++
			}
			time.Sleep(time.Second)
		}
		if writes != 5 {
			t.Errorf("%d writes in five minutes", writes)
		}
		verdict(failed(1000))
		if !verdict(apiservice.Passed()) || !verdict(failed(1001)) {
			t.Error("a change of the status is held back")
		}
		if verdict(failed(1002)) {
			t.Error("a message is not held back")
		}
		select {
		case <-g.paced.next(time.Now()):
		case <-time.After(messagePause + time.Second):
			t.Fatal("nothing says when the last message may be written")
		}
		if !verdict(failed(1002)) || g.paced.next(time.Now()) != nil {
			t.Error("the last message is not written, or held back still")
		}
	})
}
