package main

import (
	"debug/buildinfo"
	"os/exec"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// A binary names the commit that the Go toolchain recorded in it, which it does
// for `go build` in a clone unless -buildvcs=false says otherwise.
func TestVersionNamesTheCommit(t *testing.T) {
	t.Parallel()
	portico := e2e.Program(t, testtools.Portico)
	info, err := buildinfo.ReadFile(portico)
	if err != nil {
		t.Fatal(err)
	}
	want := "unknown"
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			want = s.Value + " (20"
		}
	}
	out, err := exec.Command(portico, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, commit, _ := strings.Cut(string(out), "\ncommit  "); !strings.HasPrefix(commit, want) {
		t.Errorf("portico version prints %q, want commit %s", out, want)
	}
}
