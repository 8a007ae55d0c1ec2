package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func issuing(t *testing.T) (caDir, outDir string) {
	t.Helper()
	caDir = filepath.Join(t.TempDir(), "ca")
	if err := EnsureAuthorities(caDir); err != nil {
		t.Fatal(err)
	}
	return caDir, filepath.Join(t.TempDir(), "out", "deeper")
}

// An issued certificate is valid for its use only, and no key of a CA is written.
func TestIssue(t *testing.T) {
	for _, tc := range []struct {
		name  string
		req   Request
		usage x509.ExtKeyUsage
		hosts []string
	}{
		{"server", Request{By: ServingAuthority, User: "core", Hosts: []string{"127.0.0.2", "core.internal"}}, x509.ExtKeyUsageServerAuth, []string{"127.0.0.2", "core.internal"}},
		{"client", Request{By: ClientAuthority, User: "jane", Groups: []string{"dev", "ops"}}, x509.ExtKeyUsageClientAuth, nil},
		{"front proxy", Request{By: FrontProxyAuthority, User: FrontProxyName}, x509.ExtKeyUsageClientAuth, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			caDir, outDir := issuing(t)
			tc.req.Name, tc.req.ValidFor = "it", time.Hour
			issued, err := Issue(caDir, outDir, tc.req)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tls.LoadX509KeyPair(issued.Pair.CertFile, issued.Pair.KeyFile); err != nil {
				t.Fatal(err)
			}
			cert := certificate(t, issued.Pair.CertFile)
			for _, a := range authorities() {
				if err := verify(t, cert, filepath.Join(outDir, string(a)+".crt"), tc.usage); (err == nil) != (a == tc.req.By) {
					t.Errorf("%s says %v", a, err)
				}
			}
			for _, host := range tc.hosts {
				if err := cert.VerifyHostname(host); err != nil {
					t.Error(err)
				}
			}
			if cert.VerifyHostname("localhost") == nil {
				t.Error("it is valid for localhost, which was not requested")
			}
			if cert.Subject.CommonName != tc.req.User || strings.Join(cert.Subject.Organization, ",") != strings.Join(tc.req.Groups, ",") {
				t.Errorf("it is %v", cert.Subject)
			}
			if !cert.NotAfter.Equal(issued.NotAfter) || time.Until(cert.NotAfter) > time.Hour || time.Until(cert.NotAfter) < 50*time.Minute {
				t.Errorf("it expires %v, Issue returned %v", cert.NotAfter, issued.NotAfter)
			}
			if files := contents(t, outDir); len(files) != 5 || len(issued.Authorities) != 3 {
				t.Errorf("%d files, %d authorities", len(files), len(issued.Authorities))
			}
		})
	}
}

// A certificate may have expired. One that would expire after its CA is shortened, or rejected
// with Whole.
func TestIssueWithUnusualLifetime(t *testing.T) {
	caDir, outDir := issuing(t)
	for _, tc := range []struct {
		name        string
		validFor    time.Duration
		whole       bool
		least, most time.Duration // until it expires; both 0 if it is rejected
	}{
		{"expired", -24 * time.Hour, false, -25 * time.Hour, -23 * time.Hour},
		{"as long as its CA", DefaultAuthorityLifetime - time.Hour, true, DefaultAuthorityLifetime - 2*time.Hour, DefaultAuthorityLifetime},
		{"longer than its CA", 10 * DefaultAuthorityLifetime, false, DefaultAuthorityLifetime - time.Hour, DefaultAuthorityLifetime},
		{"longer than its CA, whole", DefaultAuthorityLifetime + time.Hour, true, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			issued, err := Issue(caDir, outDir, Request{By: ClientAuthority, Name: tc.name, User: "x", ValidFor: tc.validFor, Whole: tc.whole})
			if tc.most == 0 {
				if _, statErr := os.Stat(filepath.Join(outDir, tc.name+".crt")); err == nil || !strings.Contains(err.Error(), "its CA expires at ") || statErr == nil {
					t.Errorf("got %v, %v", err, statErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			cert := certificate(t, issued.Pair.CertFile)
			if left := time.Until(cert.NotAfter); left < tc.least || left > tc.most || !cert.NotBefore.Before(cert.NotAfter) {
				t.Errorf("from %v to %v", cert.NotBefore, cert.NotAfter)
			}
		})
	}
}

// Without Replace nothing is written if a file exists.
func TestIssueReplacesNothing(t *testing.T) {
	caDir, outDir := issuing(t)
	req := Request{By: ClientAuthority, Name: "jane", User: "jane", ValidFor: time.Hour}
	if _, err := Issue(caDir, outDir, req); err != nil {
		t.Fatal(err)
	}
	before := contents(t, outDir)
	unchanged := func() {
		t.Helper()
		for name, data := range contents(t, outDir) {
			if before[name] != data {
				t.Errorf("%s was written", name)
			}
		}
	}
	var exist *FilesExistError
	if _, err := Issue(caDir, outDir, req); !errors.As(err, &exist) || len(exist.Files) != 2 {
		t.Errorf("the same again: %v", err)
	}
	unchanged()
	// The CAs of another installation would lock out existing files.
	other, _ := issuing(t)
	another := req
	another.Name = "joe"
	if _, err := Issue(other, outDir, another); !errors.As(err, &exist) || len(exist.Files) != 3 {
		t.Errorf("of another installation: %v", err)
	}
	unchanged()
	req.Replace = true
	if _, err := Issue(other, outDir, req); err != nil {
		t.Fatal(err)
	}
	for name, data := range contents(t, outDir) {
		if before[name] == data {
			t.Errorf("%s was not replaced", name)
		}
	}
}

func TestIssueRefuses(t *testing.T) {
	caDir, outDir := issuing(t)
	good := Request{By: ServingAuthority, Name: "core", User: "core", Hosts: []string{"h"}, ValidFor: time.Hour, Replace: true}
	for _, tc := range []struct {
		name string
		edit func(r *Request)
		want string
	}{
		{"a server without hosts", func(r *Request) { r.Hosts = nil }, "needs hosts"},
		{"a client with hosts", func(r *Request) { r.By = ClientAuthority }, "needs hosts"},
		{"the files of an authority", func(r *Request) { r.Name = "client-ca" }, `cannot be named "client-ca"`},
		{"the signing key's", func(r *Request) { r.Name = "service-account" }, "cannot be named"},
		{"no name", func(r *Request) { r.Name = "" }, "cannot be named"},
		{"another folder", func(r *Request) { r.Name = "../core" }, "is not a file name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := good
			tc.edit(&req)
			if _, err := Issue(caDir, outDir, req); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := Issue(t.TempDir(), outDir, good); !errors.Is(err, ErrNoAuthority) {
		t.Errorf("without an authority: %v", err)
	}
	if _, err := os.Stat(outDir); err == nil {
		t.Error("something was written")
	}
}
