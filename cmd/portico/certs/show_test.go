package certs

import (
	"bytes"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"portico/cmd/internal/pki"
)

// An expired certificate, and one that is not valid yet, are shown as such.
func TestShownLifetimes(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca")
	if err := pki.EnsureAuthorities(ca); err != nil {
		t.Fatal(err)
	}
	issued, err := pki.Issue(ca, t.TempDir(), pki.Request{By: pki.ClientAuthority, Name: "jane", User: "jane", ValidFor: 96 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]string{0: ` (3d23h|4d)\n`, 120 * time.Hour: ` expired 2[34]h ago\n`, -72 * time.Hour: ` not before `} {
		var out bytes.Buffer
		if err := showCertificates(&out, []string{issued.Pair.CertFile}, time.Now().Add(after)); err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("after %v: %s", after, out.String())
		}
	}
}
