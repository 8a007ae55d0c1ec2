package main

import (
	"debug/buildinfo"
	"os/exec"
	"portico/cmd/e2e"
	"strings"
	"testing"
)

// A binary names the commit that the Go toolchain recorded in it, which it does
// for `go build` in a clone unless -buildvcs=false says otherwise.
func TestVersionNamesTheCommit(t *testing.T) {
	t.Parallel()
	p, err := e2e.Programs()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(p.Portico)
	if err != nil {
		t.Fatal(err)
	}
	want := "unknown"
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			want = s.Value + " (20"
		}
	}
	out, err := exec.Command(p.Portico, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, commit, _ := strings.Cut(string(out), "\ncommit  "); !strings.HasPrefix(commit, want) {
		t.Errorf("portico version prints %q, want commit %s", out, want)
	}
}
