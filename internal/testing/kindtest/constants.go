package kindtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
)

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

var packages sync.Map // a path of a folder to map[string][]string

// constantsOf returns the function that finds the values of the constants of a named string
// type of module k8s.io/api, as its source has them.
func constantsOf(t testing.TB) func(reflect.Type) []string {
	t.Helper()
	dir := ModuleDir(t, "k8s.io/api")
	return func(typ reflect.Type) []string {
		path, ok := strings.CutPrefix(typ.PkgPath(), "k8s.io/api/")
		if !ok || typ.Kind() != reflect.String {
			return nil
		}
		known, ok := packages.Load(path)
		if !ok {
			known = constants(t, filepath.Join(dir, path, "types.go"))
			packages.Store(path, known)
		}
		return known.(map[string][]string)[typ.Name()]
	}
}

// constants returns the values of the string constants of a file, by the name of their type.
func constants(t testing.TB, file string) map[string][]string {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		name, ok := spec.Type.(*ast.Ident)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil {
					out[name.Name] = append(out[name.Name], s)
				}
			}
		}
		return true
	})
	return out
}
