package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Release is a version that was released.
type Release struct{ Version, Commit string }

// Releases are all of them, the oldest first. The commit is enough to build one: a clone may lack tags.
var Releases = []Release{
	{"v0.1.0", "22310243b9a8f0ea1d484fb39b77e919182f187b"},
}

// Build builds the program of a release from the history of the repository, and returns its path and the folder of its
// sources.
func (r Release) Build(t *testing.T) (program, source string) {
	t.Helper()
	source = t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "-C", Repository(), "archive", "--output="+filepath.Join(source, "source.tar"), r.Commit)
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("git archive %s: %v\n%s\na shallow clone lacks the commit", r.Commit, err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "tar", "-x", "-C", source, "-f", filepath.Join(source, "source.tar")).CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", r.Version, err, out)
	}
	program = filepath.Join(source, "portico")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-trimpath", "-o", program, "./cmd/portico")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", r.Version, err, out)
	}
	return program, source
}
