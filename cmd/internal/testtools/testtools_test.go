package testtools

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPruneRemovesProgramsOfRemovedWorkingCopies(t *testing.T) {
	all, here := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(here, "go.mod"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, owner := range map[string]string{"kept": here, "gone": filepath.Join(here, "no-more"), "unowned": ""} {
		dir := filepath.Join(all, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if owner == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(owner), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := prune(all); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"kept": true, "gone": false, "unowned": true} {
		if _, err := os.Stat(filepath.Join(all, name)); (err == nil) != want {
			t.Errorf("folder %s exists: %t, want %t", name, err == nil, want)
		}
	}
}
