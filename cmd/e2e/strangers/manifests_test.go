//go:build strangers

package strangers

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"portico/cmd/e2e"
)

// Modules that contain manifests.
const (
	gatekeeperModule         = "github.com/open-policy-agent/gatekeeper/v3@v3.23.1"
	prometheusOperatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	certManagerModule        = "github.com/cert-manager/cert-manager@v1.21.2"
	clusterAPIModule         = "sigs.k8s.io/cluster-api@v1.14.2"
)

// TestPublishedManifests checks that manifests that projects publish apply whole, that a
// second time changes nothing, and that their deletion ends.
func TestPublishedManifests(t *testing.T) {
	t.Parallel()
	for _, m := range []struct {
		name   string
		module string
		// serverSide is for definitions that are too large for the annotation of
		// client-side apply, 256 KiB.
		serverSide bool
		// manifest returns what is applied. It may apply before what that needs.
		manifest func(t *testing.T, up *e2e.Installation, dir string) string
	}{
		{"gatekeeper", gatekeeperModule, false, func(t *testing.T, _ *e2e.Installation, dir string) string {
			return read(t, dir, "deploy/gatekeeper.yaml")
		}},
		{"prometheus-operator", prometheusOperatorModule, true, func(t *testing.T, _ *e2e.Installation, dir string) string {
			return read(t, dir, "bundle.yaml")
		}},
		{"cert-manager", certManagerModule, false, func(t *testing.T, up *e2e.Installation, dir string) string {
			chart := filepath.Join(dir, "deploy/charts/cert-manager")
			h := newHelm(t, up)
			return read(t, dir, "deploy/manifests/namespace.yaml") + run(t, "", h.env, h.program,
				"template", "cert-manager", chart, "--namespace=cert-manager", "--set=crds.enabled=true")
		}},
		{"cluster-api", clusterAPIModule, false, clusterAPI},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			up := e2e.Install(t, t.TempDir())
			file := filepath.Join(t.TempDir(), "manifest.yaml")
			e2e.WriteFile(t, file, m.manifest(t, up, source(t, m.module)))
			checkManifest(t, up, file, m.serverSide)
		})
	}
}

// checkManifest applies the objects of a file twice, reads and deletes them.
func checkManifest(t *testing.T, up *e2e.Installation, file string, serverSide bool) {
	objects := len(regexp.MustCompile(`(?m)^kind: `).FindAllString(read(t, file), -1))
	apply := []string{"apply", fmt.Sprintf("--server-side=%t", serverSide), "-f", file}
	applied := up.MustKubectl(t, apply...)
	if n := len(regexp.MustCompile(`(?m) (created|serverside-applied)$`).FindAllString(applied, -1)); n != objects || n == 0 {
		t.Fatalf("the manifest has %d objects, of which kubectl applied %d:\n%s", objects, n, applied)
	}
	versions := func() []string {
		out := up.MustKubectl(t, "get", "-f", file, "-o", `jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.resourceVersion}{"\n"}{end}`)
		return strings.Split(strings.TrimSpace(out), "\n")
	}
	// Again, because controllers write status at first.
	e2e.Eventually(t, "kubectl apply changes nothing", func() error {
		before := versions()
		if len(before) != objects {
			t.Fatalf("of %d objects there are %d:\n%s", objects, len(before), strings.Join(before, "\n"))
		}
		up.MustKubectl(t, apply...)
		return diff(before, versions())
	})
	// A namespace takes objects with it that come later in the file.
	up.MustKubectl(t, "delete", "--wait", "--ignore-not-found", "-f", file)
	if left := up.MustKubectl(t, "get", "--ignore-not-found", "-f", file, "-o", "name"); left != "" {
		t.Errorf("after kubectl delete there are\n%s", left)
	}
	t.Logf("%d objects", objects)
}

// diff returns an error that lists the elements of after that before has not.
func diff(before, after []string) error {
	changed := slices.DeleteFunc(after, func(line string) bool { return slices.Contains(before, line) })
	if len(changed) > 0 {
		return fmt.Errorf("changed: %s", strings.Join(changed, ", "))
	}
	return nil
}

// clusterAPI returns the components that clusterctl installs. Their certificates are of
// cert-manager's kinds.
func clusterAPI(t *testing.T, up *e2e.Installation, dir string) string {
	definitions := filepath.Join(source(t, certManagerModule), "deploy/crds")
	up.MustKubectl(t, "apply", "-f", definitions)
	up.MustKubectl(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", definitions)
	var manifest strings.Builder
	for _, component := range []string{"core", "bootstrap/kubeadm", "controlplane/kubeadm"} {
		manifest.WriteString(up.MustKubectl(t, "kustomize", filepath.Join(dir, component, "config/default")) + "---\n")
	}
	// clusterctl replaces ${NAME:=default} by the default of a variable that is not set.
	return regexp.MustCompile(`\$\{\w+:=([^}]*)\}`).ReplaceAllString(manifest.String(), "$1")
}

// read returns the text of a file.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
