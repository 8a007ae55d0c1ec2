//go:build strangers

package strangers

import (
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/cmd/internal/testtools"
)

// apiextensionsFailures are the tests of apiextensions-apiserver that fail, with the reason.
var apiextensionsFailures = map[string]string{
	"TestChangeCRD":                "expects that a change of a definition ends watches, which go on",
	"TestCBORStorageEnablement":    "nothing is stored in CBOR",
	"TestEtcdStorage":              "definitions are stored as apiextensions.k8s.io/v1, which kube-apiserver reads as well as v1beta1",
	"TestFieldSelectorDropFields":  "emulates a version in which selectable fields can be off",
	"TestFieldSelectorDisablement": "emulates a version in which selectable fields can be off",
	"TestRatchetingDropFields":     "switches ratcheting off in its own process",
}

// TestApiextensions runs the integration tests of apiextensions-apiserver. Each starts an
// installation in the place of its own server: testdata/apiextensions.txt is the package that
// does so. Only what apiextensionsFailures names fails, and all of that does.
func TestApiextensions(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/apiextensions-apiserver").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := source(t, "k8s.io/apiextensions-apiserver@"+strings.TrimSpace(string(version)))
	e2e.WriteFile(t, filepath.Join(dir, "test/integration/fixtures/server.go"), read(t, "testdata/apiextensions.txt"))
	const packages = "./test/integration/..."
	env := append([]string{"PORTICO=" + e2e.Program(t, testtools.Portico), "TMPDIR=" + t.TempDir()}, noWorkspace...)

	listed := run(t, dir, env, "go", "test", "-vet=off", "-list=.", packages)
	out, _ := try(t, dir, env, "go", "test", "-json", "-vet=off", "-count=1", "-timeout=30m", packages)
	r := readResults(strings.NewReader(out))
	for line := range strings.Lines(listed) {
		if name := strings.TrimSpace(line); strings.HasPrefix(name, "Test") && r.outcomes[name] == "" {
			t.Errorf("did not end: %s", name)
		}
	}
	checkOutcomes(t, r.outcomes, r.output, apiextensionsFailures)
	t.Log(countOutcomes(r.outcomes))
}

// checkOutcomes checks that what is named in failures, with the reason, fails, and nothing else. A test that fails because a
// subtest does is not named.
func checkOutcomes(t *testing.T, outcomes, output, failures map[string]string) {
	t.Helper()
	for test := range failures {
		if outcomes[test] == "" {
			t.Errorf("expected to fail, but not run: %s", test)
		}
	}
	for _, test := range slices.Sorted(maps.Keys(outcomes)) {
		reason, expected := failures[test]
		switch failed := outcomes[test] == "fail" && !hasFailure(outcomes, test); {
		case failed && expected:
			t.Logf("expected: %s: %s", test, reason)
		case failed:
			t.Errorf("failed: %s\n%s", test, output[test])
		case expected:
			t.Errorf("%s: %s, expected to fail: %s", test, outcomes[test], reason)
		}
	}
}
