package generated

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the generated files")

// The definitions of Backend are generated from its types. After a change of a comment or a field:
// go -C cmd/tools test ./generated -update
func TestDefinitionsOfBackend(t *testing.T) {
	t.Parallel()
	const dir = "apiservice/backend"
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	work := t.TempDir()
	generator, header := filepath.Join(work, "openapi-gen"), filepath.Join(work, "header")
	if err := os.WriteFile(header, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, ".", "go", "build", "-o", generator, "k8s.io/kube-openapi/cmd/openapi-gen")
	files := []string{"zz_generated.openapi.go", "zz_generated.model_name.go"}
	old := map[string][]byte{}
	for _, file := range files {
		if old[file], err = os.ReadFile(filepath.Join(root, dir, file)); err != nil && !*update {
			t.Fatal(err)
		}
	}
	// The generator writes the names of models beside the types, whatever the other flags are.
	run(t, root, generator, "--output-dir", dir, "--output-pkg", "portico/"+dir, "--output-file", files[0], "--output-model-name-file", files[1],
		"--go-header-file", header, "--report-filename", filepath.Join(work, "violations"), "portico/"+dir)
	for _, file := range files {
		now, err := os.ReadFile(filepath.Join(root, dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if *update || bytes.Equal(now, old[file]) {
			continue
		}
		t.Errorf("%s was outdated: run the test with -update", file)
		if err := os.WriteFile(filepath.Join(root, dir, file), old[file], 0o644); err != nil {
			t.Error(err)
		}
	}
}

// run runs a command in a directory.
func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}
