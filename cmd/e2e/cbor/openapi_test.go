package cbor

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"portico/cmd/e2e"
	"portico/internal/testing/kindtest"
)

// The OpenAPI documents of Kubernetes' groups equal the files in api/openapi-spec of
// k8s.io/kubernetes. These files are made with all alpha and beta gates and without enums (hack/update-openapi-spec.sh);
// of the gates only CBORServingAndStorage changes what is compared. docs/wire.md 1.7 lists what differs.
func TestOpenAPIEqualsThatOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	client := e2e.HTTPClient(t, up.Config(t))
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	get(t, client, up.Endpoint+"/openapi/v3", &index)
	dir := filepath.Join(kindtest.ModuleDir(t, "k8s.io/kubernetes"), "api", "openapi-spec")
	files, err := os.ReadDir(filepath.Join(dir, "v3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		key := strings.ReplaceAll(strings.TrimSuffix(file.Name(), "_openapi.json"), "__", "/")
		entry, ok := index.Paths[key]
		delete(index.Paths, key)
		if !ok {
			if !offByDefault(key) {
				t.Errorf("the index has no document %s", key)
			}
			continue
		}
		var got, want map[string]any
		get(t, client, up.Endpoint+entry.URL, &got)
		read(t, filepath.Join(dir, "v3", file.Name()), &want)
		report(t, []string{key}, got, want)
	}
	for key := range index.Paths {
		if !ofPortico(key) && key != ".well-known/openid-configuration" {
			t.Errorf("kube-apiserver has no document %s", key)
		}
	}
}

// The same of version 2. Parameters are compared where they are used, and definitions that have been
// published; the order of media types has no meaning.
func TestOpenAPIVersion2EqualsThatOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	up := e2e.SharedInstallation(t)
	var got, want swagger
	get(t, e2e.HTTPClient(t, up.Config(t)), up.Endpoint+"/openapi/v2", &got)
	read(t, filepath.Join(kindtest.ModuleDir(t, "k8s.io/kubernetes"), "api", "openapi-spec", "swagger.json"), &want)
	gotPaths := got.paths()
	for path, item := range want.paths() {
		if have, ok := gotPaths[path]; ok {
			report(t, []string{path}, have, item)
		} else if !offByDefault(keyOf(path)) {
			t.Errorf("no path %s", path)
		}
		delete(gotPaths, path)
	}
	for path := range gotPaths {
		if !ofPortico(path) {
			t.Errorf("kube-apiserver has no path %s", path)
		}
	}
	for name, s := range got.Definitions {
		if w, ok := want.Definitions[name]; ok {
			report(t, []string{name}, s, w)
		} else if !ofPortico(name) && !strings.HasSuffix(name, ".meta.v1.Duration") { // of Backend
			t.Errorf("kube-apiserver has no definition %s", name)
		}
	}
}

func report(t *testing.T, path []string, got, want any) {
	t.Helper()
	for _, d := range differences(path, got, want) {
		t.Error(d)
	}
}

type swagger struct {
	Paths       map[string]map[string]any `json:"paths"`
	Definitions map[string]any            `json:"definitions"`
	Parameters  map[string]any            `json:"parameters"`
}

// paths returns the paths with their parameters, by name, in the place of references, and sorted media
// types.
func (s *swagger) paths() map[string]any {
	out := map[string]any{}
	for path, item := range s.Paths {
		for _, op := range item {
			if op, ok := op.(map[string]any); ok {
				s.settle(op)
			}
		}
		s.settle(item)
		out[path] = map[string]any(item)
	}
	return out
}

func (s *swagger) settle(op map[string]any) {
	for _, types := range []string{"consumes", "produces"} {
		if list, ok := op[types].([]any); ok {
			slices.SortFunc(list, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
		}
	}
	list, _ := op["parameters"].([]any)
	byName := map[string]any{}
	for _, p := range list {
		p := p.(map[string]any)
		if ref, ok := p["$ref"].(string); ok {
			p = s.Parameters[strings.TrimPrefix(ref, "#/parameters/")].(map[string]any)
		}
		byName[fmt.Sprint(p["in"], " ", p["name"])] = p
	}
	op["parameters"] = byName
}

// ofPortico reports whether a path or a name is of the group of Portico or of the custom resources of
// another test.
func ofPortico(name string) bool {
	return slices.ContainsFunc([]string{"gateway.portico.dev", "dev.portico.gateway", "cbor.example.com", "com.example.cbor"}, func(group string) bool {
		return strings.Contains(name, group)
	})
}

// keyOf returns the key of the version 3 document that has a path.
func keyOf(path string) string {
	root, rest, _ := strings.Cut(strings.Trim(path, "/"), "/")
	if root != "apis" {
		return root
	}
	parts := strings.SplitN(rest, "/", 3)
	return root + "/" + strings.Join(parts[:min(2, len(parts))], "/")
}

// offByDefault reports whether kube-apiserver serves the document of a key only if a flag enables it.
func offByDefault(key string) bool {
	group, version, _ := strings.Cut(strings.TrimPrefix(key, "apis/"), "/")
	return strings.Contains(version, "alpha") || strings.Contains(version, "beta") || key == "logs" ||
		slices.Contains([]string{"internal.apiserver.k8s.io", "lifecycle.k8s.io", "storagemigration.k8s.io"}, group)
}

func get(t *testing.T, client *http.Client, url string, to any) {
	t.Helper()
	code, body := e2e.Get(t, client, url, "application/json")
	if err := json.Unmarshal([]byte(body), to); code != http.StatusOK || err != nil {
		t.Fatalf("GET %s: %d, %v", url, code, err)
	}
}

func read(t *testing.T, file string, to any) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// differences returns a line for each value at which two documents differ, and which is not in the
// list of docs/wire.md.
func differences(path []string, got, want any) (out []string) {
	if g, ok := got.(map[string]any); ok {
		w, _ := want.(map[string]any)
		all := maps.Clone(g)
		maps.Copy(all, w)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			out = append(out, differences(append(slices.Clone(path), key), g[key], w[key])...)
		}
		return out
	}
	at := strings.Join(path, " ")
	switch {
	case reflect.DeepEqual(got, want), path[len(path)-1] == "enum" && want == nil:
	case path[len(path)-1] == "description" && got != nil && withoutEnum(got.(string)) == want:
	case path[len(path)-1] == "consumes" && got == nil: // of operations without a body
	case ofEveryGroup(path) && subset(got, want): // groups that are not served
	case answersWithObject(at) && strings.HasSuffix(fmt.Sprint(want), ".Status"):
	default:
		out = append(out, fmt.Sprintf("%s: got %.200v, want %.200v", at, got, want))
	}
	return out
}

// ofEveryGroup reports whether a value is the kinds of a type that every group has, in version 2.
func ofEveryGroup(path []string) bool {
	return path[len(path)-1] == "x-kubernetes-group-version-kind" && (strings.HasSuffix(path[0], ".v1.DeleteOptions") || strings.HasSuffix(path[0], ".v1.WatchEvent"))
}

// subset reports whether all elements of a list are in another one, or of the group of Portico.
func subset(got, want any) bool {
	all, _ := want.([]any)
	some, _ := got.([]any)
	return len(some) > 0 && !slices.ContainsFunc(some, func(one any) bool {
		return !ofPortico(fmt.Sprint(one)) && !slices.ContainsFunc(all, func(other any) bool { return reflect.DeepEqual(one, other) })
	})
}

// answersWithObject reports whether a value is in the response to a DELETE that kube-apiserver
// describes as a Status. It answers with the object.
func answersWithObject(at string) bool {
	return strings.Contains(at, "/api/v1/namespaces/{name} delete responses ") || strings.Contains(at, "/customresourcedefinitions/{name} delete responses ")
}

// withoutEnum returns a description without the values of an enum.
func withoutEnum(s string) string {
	s, _, _ = strings.Cut(s, "Possible enum values:")
	return strings.TrimRight(s, "\n")
}
