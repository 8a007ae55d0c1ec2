package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"portico/cmd/internal/datadir"
)

// A command that may not read the data folder says so, with the user that may, and nothing of an installation that does
// not run: doctor advises to remove what is left of one.
func TestFolderOfAnotherUser(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	parent := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(parent), 0o755), os.Chmod(parent, 0o755)); err != nil {
		t.Fatal(err)
	}
	dir, err := datadir.Open(filepath.Join(parent, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	t.Run("commands", func(t *testing.T) { withoutAccess(t, dir) })
}

func withoutAccess(t *testing.T, dir *datadir.Dir) {
	owner := os.Geteuid()
	if owner == 0 {
		// The file system takes this thread for one of user nobody. It ends with the goroutine.
		runtime.LockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(dir.Path, 0); err != nil {
		t.Fatal(err)
	} else {
		defer os.Chmod(dir.Path, 0o700)
	}
	want := fmt.Sprintf("cannot read %s: permission denied: run this as the user of portico up (uid %d), or as root", dir.Path, owner)
	for _, line := range []string{
		"backup x.backup", "logs", "doctor", "status", "upgrade-check", "certs rotate", "certs kubeconfig --server=https://127.0.0.1:1 --user=jane --out=jane",
		"certs issue client --name=a --user=a --out=a", "storage rewrite secrets --encryption-provider-config=x",
	} {
		if _, err := command(t, strings.Fields(line+" --data-dir="+dir.Path)...); err == nil || err.Error() != want {
			t.Errorf("portico %s: %v, want %q", line, err, want)
		}
	}
}
