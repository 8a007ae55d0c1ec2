package datadir

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(path)
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.PID != os.Getpid() || inUse.Path != path {
		t.Fatalf("got %v, want InUseError naming this process", err)
	}
	if pid := Holder(path); pid != os.Getpid() {
		t.Errorf("the folder is held by %d", pid)
	}
	first.Close()
	if pid := Holder(path); pid != 0 {
		t.Errorf("after the first was closed, the folder is held by %d", pid)
	}
	second, err := Open(path)
	if err != nil {
		t.Fatal("after the first was closed:", err)
	}
	second.Close()
}

// A folder that Open made is discarded, one that was there is not.
func TestDiscard(t *testing.T) {
	there := t.TempDir()
	for path, left := range map[string]bool{there: true, filepath.Join(there, "new"): false} {
		d, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		d.Discard()
		d.Close()
		if _, err := os.Stat(path); (err == nil) != left {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestUnusable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "data")); err == nil || !strings.Contains(err.Error(), "create data folder") {
		t.Errorf("got %v", err)
	}
}

// The sockets of a folder with a path that is too long, or cannot be part of a URL in a flag, are
// in another folder, to which run links.
func TestSocketsElsewhere(t *testing.T) {
	runtime, err := os.MkdirTemp("", "pr")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(runtime)
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	for _, name := range []string{strings.Repeat("deep/", 30), "a#b", "a%b", "a?b", "a,b", `a"b`, "a\nb"} {
		path := filepath.Join(runtime, name)
		for range 2 {
			d, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(d.Run, path) || filepath.Dir(d.Run) != runtime {
				t.Errorf("%q: run folder is %s, not in %s", name, d.Run, runtime)
			}
			if to, err := os.Readlink(d.File("run")); to != d.Run {
				t.Errorf("the data folder records %q (%v), not %s", to, err, d.Run)
			}
			ln, err := net.Listen("unix", filepath.Join(d.Run, longestSocket))
			if err != nil {
				t.Fatal(err)
			}
			ln.Close()
			d.Close()
		}
	}
}

func TestRunFolderIsPrivate(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "run"), 0o777); err != nil {
		t.Fatal(err)
	}
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	info, err := os.Stat(d.Run)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v", info.Mode())
	}
}

// A symbolic link of another user in a shared temporary folder is refused.
func TestPlantedRunFolder(t *testing.T) {
	elsewhere := t.TempDir()
	planted := filepath.Join(t.TempDir(), "run")
	if err := os.Symlink(elsewhere, planted); err != nil {
		t.Fatal(err)
	}
	if err := checkPrivate(planted); err == nil {
		t.Error("a symbolic link is accepted")
	}
}

func TestDefault(t *testing.T) {
	for _, tc := range []struct{ xdg, home, want string }{
		{"/x", "/home/u", "/x/portico"},
		{"", "/home/u", "/home/u/.local/share/portico"},
		{"relative", "/home/u", "/home/u/.local/share/portico"},
	} {
		t.Setenv("XDG_DATA_HOME", tc.xdg)
		t.Setenv("HOME", tc.home)
		if got, err := Default(); got != tc.want || err != nil {
			t.Errorf("%+v: got %q %v", tc, got, err)
		}
	}
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "")
	if got, err := Default(); err == nil {
		t.Errorf("without a home: got %q", got)
	}
}
