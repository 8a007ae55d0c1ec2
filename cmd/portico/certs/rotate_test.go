package certs

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portico/cmd/internal/pki"
)

// A replacement is refused while as many earlier authorities are trusted as clients verify, and is not after their retirement.
func TestRotateIsBounded(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	folder := filepath.Join(dir, "pki")
	rotate := func(args ...string) error {
		cmd := newCertsRotate()
		cmd.SetArgs(append(args, "--data-dir="+dir))
		cmd.SetOut(io.Discard)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		return cmd.Execute()
	}
	ensure := func() {
		t.Helper()
		f, err := pki.Ensure(pki.Config{Dir: folder, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if now = now.Add(time.Minute); !f.NextUse.IsZero() {
			now = f.NextUse
		}
	}
	ensure()
	for range pki.MaxEarlier {
		if err := rotate(); err != nil {
			t.Fatal(err)
		}
		ensure()
		ensure()
	}
	if err := rotate(); err == nil || !strings.Contains(err.Error(), "8 earlier certificates of serving-ca are trusted") {
		t.Errorf("got %v", err)
	}
	if err := rotate("--retire"); err != nil {
		t.Fatal(err)
	}
	ensure()
	if err := rotate(); err != nil {
		t.Errorf("after the retirement: %v", err)
	}
}
