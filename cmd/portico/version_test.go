package main

import (
	"debug/buildinfo"
	"encoding/json"
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

// A binary names the modules that the Go toolchain recorded in it, each with its version.
func TestVersionNamesTheModules(t *testing.T) {
	t.Parallel()
	portico := e2e.Program(t, testtools.Portico)
	info, err := buildinfo.ReadFile(portico)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(portico, "version", "-o", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var v versionInfo
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Modules) != len(info.Deps) || len(v.Modules) == 0 {
		t.Fatalf("%d modules, want %d", len(v.Modules), len(info.Deps))
	}
	for i, m := range info.Deps {
		if got := v.Modules[i]; got.Path != m.Path || got.Version != m.Version {
			t.Errorf("module %v, want %s %s", got, m.Path, m.Version)
		}
	}
}
