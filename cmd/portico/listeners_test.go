package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// The gateway's port is the only door of an installation: apart from it, its
// processes listen on three unix sockets in a folder that only their user may
// enter. Nothing listens on another TCP or UDP port or in the abstract namespace
// of unix sockets, which has no permissions.
func TestListeners(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	run, err := filepath.EvalSymlinks(filepath.Join(up.Dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	socket := func(name string) testtools.Listener {
		return testtools.Listener{Network: "unix", Address: filepath.Join(run, name)}
	}
	for process, want := range map[string]struct {
		pid       int
		listeners []testtools.Listener
	}{
		"up":      {up.Cmd.Process.Pid, nil},
		"etcd":    {up.Child(t, "etcd"), []testtools.Listener{socket("etcd.sock")}},
		"core":    {up.Child(t, "core"), []testtools.Listener{socket("core.sock")}},
		"crd":     {up.Child(t, "crd"), []testtools.Listener{socket("crd.sock")}},
		"gateway": {up.Child(t, "gateway"), []testtools.Listener{{Network: "tcp", Address: strings.TrimPrefix(up.Endpoint, "https://")}}},
	} {
		got, err := testtools.Listeners(want.pid)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want.listeners) {
			t.Errorf("%s listens on %v, want %v", process, got, want.listeners)
		}
	}
	for path, want := range map[string]os.FileMode{
		up.Dir:                          os.ModeDir | 0o700,
		run:                             os.ModeDir | 0o700,
		filepath.Join(run, "core.sock"): os.ModeSocket | 0o600,
		filepath.Join(run, "crd.sock"):  os.ModeSocket | 0o600,
		filepath.Join(run, "etcd.sock"): os.ModeSocket | 0o600,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode() & (os.ModeType | os.ModePerm); got != want {
			t.Errorf("%s has mode %v, want %v", path, got, want)
		}
	}
	entries, err := os.ReadDir(run)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 3 {
		t.Errorf("the folder of the sockets has %v, want the three sockets only", entries)
	}
}
