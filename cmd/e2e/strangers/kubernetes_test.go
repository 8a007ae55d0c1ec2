//go:build strangers

package strangers

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// kubernetesRelease is the module k8s.io/kubernetes of the release with which Portico is compared.
type kubernetesRelease struct{ Dir, GoMod, Version string }

// downloadKubernetes downloads the module in the version that cmd/upstream requires.
func downloadKubernetes(t *testing.T) (release kubernetesRelease) {
	t.Helper()
	out := run(t, filepath.Join(e2e.Repository(), "cmd/upstream"), nil, "go", "mod", "download", "-json", "k8s.io/kubernetes")
	if err := json.Unmarshal([]byte(out), &release); err != nil {
		t.Fatal(err)
	}
	return release
}

// staging returns the modules of the folder staging, and their version: they are published as modules of their own.
func (k kubernetesRelease) staging(t *testing.T) (modules []string, version string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(\S+) => \./staging/`).FindAllStringSubmatch(read(t, k.GoMod), -1) {
		if !strings.HasPrefix(m[1], "k8s.io/sample-c") { // examples that no package imports
			modules = append(modules, m[1])
		}
	}
	return modules, strings.Replace(k.Version, "v1.", "v0.", 1)
}

// kubernetesModule returns the folder of a module that requires k8s.io/kubernetes of the release with which Portico is
// compared, and the modules of its folder staging.
func kubernetesModule(t *testing.T) (dir string) {
	t.Helper()
	release := downloadKubernetes(t)
	mod := fmt.Sprintf("module stranger\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes %s\n", release.Version)
	modules, version := release.staging(t)
	for _, m := range modules {
		mod += fmt.Sprintf("require %s %s\n", m, version)
	}
	dir = t.TempDir()
	e2e.WriteFile(t, filepath.Join(dir, "go.mod"), mod)
	return dir
}
