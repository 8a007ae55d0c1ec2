package up

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	certutil "k8s.io/client-go/util/cert"

	"portico/cmd/internal/datadir"
	"portico/cmd/internal/pki"
)

// newCredentials returns a stack that has its credentials and runs nothing.
func newCredentials(t *testing.T, dir string) *stack {
	t.Helper()
	d, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	s := &stack{dir: d, hosts: []string{"127.0.0.1"}, endpoint: "https://127.0.0.1:6443", errOut: new(bytes.Buffer), kubeconfig: filepath.Join(dir, "mine", "kubeconfig")}
	if err := s.ensureCredentials(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Over years of uptime no leaf comes within three months of its end, and the
// kubeconfigs hold the administrator's present one. Authorities stay as they are.
func TestCertificatesAreRenewedWhileUpRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCredentials(t, t.TempDir())
		leaves := []pki.Pair{s.files.Serving, s.files.Admin, s.files.FrontProxy, s.files.Core, s.files.CRD}
		ca, err := os.ReadFile(s.files.ClientCAFile)
		if err != nil {
			t.Fatal(err)
		}
		first, err := os.ReadFile(s.kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		go s.keepCredentials(t.Context())
		for range 30 {
			time.Sleep(30 * 24 * time.Hour)
			synctest.Wait()
			for _, pair := range leaves {
				certs, err := certutil.CertsFromFile(pair.CertFile)
				if err != nil {
					t.Fatal(err)
				}
				if left := time.Until(certs[0].NotAfter); left < 90*24*time.Hour {
					t.Fatalf("%v: %s ends in %v", time.Now(), pair.CertFile, left)
				}
			}
		}
		if now, err := os.ReadFile(s.files.ClientCAFile); err != nil || !bytes.Equal(now, ca) {
			t.Errorf("the authority of clients was replaced (%v)", err)
		}
		for _, file := range []string{s.kubeconfig, s.dir.File("kubeconfig")} {
			now, err := os.ReadFile(file)
			if err != nil || bytes.Equal(now, first) {
				t.Errorf("%s was not written again with the administrator's certificate (%v)", file, err)
			}
		}
		if out := s.errOut.(*bytes.Buffer); out.Len() > 0 {
			t.Errorf("said:\n%s", out)
		}
	})
}

// A renewal that fails is reported and tried again.
func TestFailedRenewalIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newCredentials(t, t.TempDir())
		if err := os.WriteFile(s.kubeconfig, []byte("kind: Config"), 0o600); err != nil {
			t.Fatal(err)
		}
		go s.keepCredentials(t.Context())
		time.Sleep(2*maxRenewInterval + time.Minute)
		synctest.Wait()
		out := s.errOut.(*bytes.Buffer).String()
		if strings.Count(out, "portico: renew certificates: ") != 2 || !strings.Contains(out, s.kubeconfig) {
			t.Errorf("said:\n%s", out)
		}
	})
}

// A start that finds everything as it should be writes none of it: the disk may be
// full.
func TestUnchangedCredentialsAreNotWritten(t *testing.T) {
	t.Parallel()
	s := newCredentials(t, t.TempDir())
	files := func() map[string]os.FileInfo {
		all := map[string]os.FileInfo{}
		for _, pattern := range []string{s.dir.File("pki", "*"), s.dir.File("kubeconfig"), s.kubeconfig} {
			names, _ := filepath.Glob(pattern) // the patterns are good
			for _, name := range names {
				info, err := os.Stat(name)
				if err != nil {
					t.Fatal(err)
				}
				all[name] = info
			}
		}
		return all
	}
	before := files()
	if len(before) < 10 {
		t.Fatalf("only %d files", len(before))
	}
	if err := s.ensureCredentials(); err != nil {
		t.Fatal(err)
	}
	for name, info := range files() {
		if !os.SameFile(info, before[name]) || !info.ModTime().Equal(before[name].ModTime()) {
			t.Errorf("%s was written again", name)
		}
	}
}

// The advice is about the file that is damaged, or the disk that is full.
func TestAdvice(t *testing.T) {
	t.Parallel()
	s := newCredentials(t, t.TempDir())
	own := s.dir.File("kubeconfig")
	if err := os.WriteFile(own, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := advise(s.ensureCredentials()); err == nil || !strings.Contains(err.Error(), own) || !strings.Contains(err.Error(), "move it away") || strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("damaged kubeconfig in the data folder: %v", err)
	}
	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.kubeconfig, []byte("kind: Config"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := advise(s.ensureCredentials()); err == nil || !strings.Contains(err.Error(), "--kubeconfig") {
		t.Errorf("kubeconfig of the user: %v", err)
	}
	full := fmt.Errorf("write file: %w", &os.PathError{Op: "write", Path: "/x", Err: syscall.ENOSPC})
	if err := advise(full); !strings.Contains(err.Error(), "free space") || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("full disk: %v", err)
	}
}
