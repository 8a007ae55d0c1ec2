package kindtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// Objects reads the valid objects of a resource below dir: the documents of
// VERSION.RESOURCE.yaml, with GROUP. before it for other groups than the core group.
func Objects(t testing.TB, dir string, gvr schema.GroupVersionResource) []map[string]any {
	t.Helper()
	name := fileName(gvr) + ".yaml"
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil
	}
	var out []map[string]any
	for doc := range strings.SplitSeq("\n"+string(data), "\n---\n") {
		var o map[string]any
		if err := yaml.UnmarshalStrict([]byte(doc), &o); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(o) > 0 {
			out = append(out, o)
		}
	}
	return out
}

// fileName returns the name of the files of a resource, without their ending.
func fileName(gvr schema.GroupVersionResource) string {
	return strings.TrimPrefix(gvr.Group+"."+gvr.Version+"."+strings.ReplaceAll(gvr.Resource, "/", "_"), ".")
}

// NameOf returns the name of an object.
func NameOf(o map[string]any) string {
	name, _ := Dig(o, "metadata", "name").(string)
	return name
}

var modules sync.Map

// ModuleDir returns the folder with the source of a module that the tests depend on.
func ModuleDir(t testing.TB, path string) string {
	t.Helper()
	if dir, ok := modules.Load(path); ok {
		return dir.(string)
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		t.Fatalf("find module %s: %v", path, err)
	}
	dir := strings.TrimSpace(string(out))
	modules.Store(path, dir)
	return dir
}
