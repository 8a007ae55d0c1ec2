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

// The state of a working copy changes with every file that is written, and with variables of the
// go command.
func TestStateOfWorkingCopy(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	state := func() string {
		t.Helper()
		s, err := stateOf(root)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write("a/a.go", "package a")
	before := state()
	if state() != before {
		t.Error("it changes by itself")
	}
	for _, change := range []struct {
		what string
		make func()
		same bool
	}{
		{"a file", func() { write("a/a.go", "package a // changed") }, false},
		{"a new file", func() { write("a/unit.service", "[Unit]") }, false},
		{"a variable", func() { t.Setenv("GOFLAGS", "-tags=other") }, false},
		{"a commit", func() { write(".git/HEAD", "ref") }, true},
	} {
		change.make()
		after := state()
		if (after == before) != change.same {
			t.Errorf("after %s it is the same: %t", change.what, after == before)
		}
		before = after
	}
}
