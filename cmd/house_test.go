// Package cmd holds no program of its own: this test keeps the rules of the
// house, which no compiler knows.
//
// Runs in: tests.
package cmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = ".."

// listed is a package as the go command lists it.
type listed struct {
	ImportPath   string
	Name         string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// short is the import path without the module: "gateway/access".
func (p *listed) short() string { return strings.TrimPrefix(p.ImportPath, "portico/") }

func packages(t *testing.T) []*listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Name,Dir,GoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list packages: %v\n%s", err, stderr.String())
	}
	var all []*listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(listed)
		if err := dec.Decode(p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// floors from the bottom. A package belongs to the longest folder that holds
// it, and imports only from lower floors or its own folder. Above is the rank
// among the folders of one floor: 0 for most, which do not import each other.
var floors = []struct {
	folder       string
	floor, above int
}{
	{"resource", 0, 0},
	{"resource/bodylimit", 0, 0},
	{"resource/fairshare", 0, 0},
	{"resource/loop", 1, 0},
	{"resource/client", 1, 1},
	{"resource/etcd", 1, 0},
	{"internal/testing/memstore", 1, 0},
	{"resource/authn", 1, 0},
	{"resource/authz", 1, 0},
	{"resource/audit", 1, 0},
	{"resource/tracing", 1, 0},
	{"internal/testing/storetest", 1, 0},
	{"internal/testing/tools", 0, 0},
	{"internal/testing/history", 1, 0},
	{"resource/rest", 1, 1},
	{"resource/watchcache", 1, 2},
	{"resource/admission", 1, 2},
	{"resource/serve", 1, 3},
	{"apiservice", 2, 0},
	{"apiservice/availability", 2, 0},
	{"discovery", 2, 0},
	{"discovery/openapi", 2, 0},
	{"discovery/rest", 2, 1},
	{"discovery/sources", 2, 2},
	{"backends/process", 2, 0},
	{"gateway/access", 3, 0},
	{"gateway/accesslog", 3, 0},
	{"gateway/flow", 3, 0},
	{"gateway/console", 3, 0},
	{"gateway/upstream", 3, 0},
	{"gateway/lastgood", 3, 0},
	{"gateway/proxy", 3, 1},
	{"gateway/routing", 3, 2},
	{"gateway/registration", 3, 3},
	{"gateway/openapi", 3, 3},
	{"gateway", 3, 4},
	{"backends/core/kinds", 3, 0},
	{"backends/core", 3, 1},
	{"backends/crd", 3, 1},
	{"cmd/internal", 4, 0},
	{"cmd/portico", 4, 1},
	{"cmd/attack", 4, 1},
	{"cmd/e2e", 4, 1},
	{"cmd", 4, 1},
}

// place finds the row of a package; -1 if the page draws no such room.
func place(short string) int {
	best := -1
	for i, f := range floors {
		if short != f.folder && !strings.HasPrefix(short, f.folder+"/") {
			continue
		}
		if best < 0 || len(f.folder) > len(floors[best].folder) {
			best = i
		}
	}
	return best
}

// mayImport reports whether an arrow may go from one package to another.
func mayImport(from, to string) bool {
	if strings.HasPrefix(from, "cmd/") || from == "cmd" {
		// Commands tie the knot, but what only they need stays with them.
		return !strings.HasPrefix(from, "cmd/internal/") || strings.HasPrefix(to, "resource")
	}
	i, j := place(from), place(to)
	if i < 0 || j < 0 {
		return false
	}
	a, b := floors[i], floors[j]
	switch {
	case strings.HasPrefix(to, "cmd"):
		return false
	case b.floor < a.floor:
		return true
	case b.floor > a.floor:
		return false
	case a.folder == b.folder:
		return true
	}
	// On one floor: a room may look into rooms below it, but gateway, core and
	// crd never into each other.
	return process(a.folder) == process(b.folder) && b.above < a.above
}

// process is the part of the third floor that a folder is in: gateway, core or crd.
// On all others it is "".
func process(folder string) string {
	for _, p := range []string{"gateway", "backends/core", "backends/crd"} {
		if below(folder, p) {
			return p
		}
	}
	return ""
}

func TestFloors(t *testing.T) {
	for _, p := range packages(t) {
		if place(p.short()) < 0 {
			t.Errorf("%s stands in no room of the house", p.ImportPath)
		}
		for _, imp := range p.Imports {
			if to, ok := strings.CutPrefix(imp, "portico/"); ok && !mayImport(p.short(), to) {
				t.Errorf("%s must not import %s", p.ImportPath, imp)
			}
		}
	}
}

// The rule itself, by example: a test of floors that lets everything pass would
// not be noticed.
func TestMayImport(t *testing.T) {
	for _, tc := range []struct {
		from, to string
		want     bool
	}{
		{"resource/rest", "resource", true},
		{"resource", "resource/rest", false},
		{"resource/serve", "resource/rest", true},
		{"resource/rest", "resource/serve", false},
		{"resource/etcd", "resource/client", false},
		{"resource/serve", "discovery", false},
		{"apiservice", "discovery", false},
		{"apiservice/availability", "apiservice", false},
		{"discovery/sources", "discovery", true},
		{"discovery", "discovery/sources", false},
		{"gateway", "gateway/access", true},
		{"gateway/access", "gateway", false},
		{"gateway/proxy", "gateway/upstream", true},
		{"gateway/upstream", "gateway/proxy", false},
		{"gateway/routing", "gateway/proxy", true},
		{"gateway/proxy", "gateway/routing", false},
		{"gateway/registration", "gateway/routing", true},
		{"gateway/routing", "gateway/registration", false},
		{"gateway/registration", "gateway/openapi", false},
		{"gateway/access", "gateway/flow", false},
		{"gateway/proxy", "backends/core/kinds", false},
		{"gateway", "backends/core", false},
		{"backends/core", "gateway/access", false},
		{"backends/core", "backends/core/kinds", true},
		{"gateway", "backends/core/kinds", false},
		{"gateway", "apiservice/availability", true},
		{"cmd/portico", "gateway", true},
		{"cmd/internal/pki", "gateway", false},
		{"gateway", "cmd/internal/pki", false},
		{"attic", "resource", false},
	} {
		if got := mayImport(tc.from, tc.to); got != tc.want {
			t.Errorf("%s imports %s: %v, want %v", tc.from, tc.to, got, tc.want)
		}
	}
}

// doors are the only places, packages or files, that import a module (or
// anything below it).
var doors = map[string][]string{
	"github.com/gin-gonic/gin":         {"gateway", "resource/serve"},
	"net/http/httputil":                {"gateway/proxy/proxy.go", "backends/core/connect.go"},
	"go.etcd.io/etcd/client/v3":        {"resource/etcd"},
	"go.etcd.io/etcd/server/v3":        {"cmd/internal/embedetcd"},
	"github.com/golang-jwt/jwt":        {"resource/authn"},
	"go.opentelemetry.io/otel":         {"resource/tracing"},
	"k8s.io/apiserver/pkg/audit":       {"resource/audit"},
	"k8s.io/apiserver/plugin":          {"resource/audit"},
	"gopkg.in/natefinch/lumberjack.v2": {"resource/audit"},
	"github.com/hashicorp/golang-lru":  {"resource/authn", "resource/bytelru", "discovery/openapi"},
}

// forbidden is imported by nobody, tests included: it is what Portico replaces.
var forbidden = []string{
	"k8s.io/kubernetes",
	"k8s.io/apiserver/pkg/server",
	"k8s.io/apiserver/pkg/registry",
	"k8s.io/apiserver/pkg/endpoints",
}

// below reports whether an import path is module or lies below it.
func below(imp, module string) bool { return imp == module || strings.HasPrefix(imp, module+"/") }

func TestDoors(t *testing.T) {
	for _, p := range packages(t) {
		for _, file := range p.GoFiles {
			for _, imp := range importsOf(t, filepath.Join(p.Dir, file)) {
				for module, allowed := range doors {
					if below(imp, module) && !slices.Contains(allowed, p.short()) && !slices.Contains(allowed, path.Join(p.short(), file)) {
						t.Errorf("%s/%s imports %s, which is for %s only", p.short(), file, imp, strings.Join(allowed, ", "))
					}
				}
			}
		}
	}
}

func TestForbidden(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for _, module := range forbidden {
				if below(imp, module) {
					t.Errorf("%s imports %s", p.ImportPath, imp)
				}
			}
		}
	}
}

func importsOf(t *testing.T, file string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range f.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, `"`))
	}
	return paths
}

// Every package says in a first sentence what it is for, and which processes it
// runs in.
func TestPackageDocs(t *testing.T) {
	runsIn := regexp.MustCompile(`(?m)^Runs in: .+\.$`)
	sentence := regexp.MustCompile(`(?s)^(?:Package|Command) (\w+) .+?[.:]\s`)
	for _, p := range packages(t) {
		var doc string
		for _, file := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc == nil {
				continue
			}
			if doc != "" {
				t.Errorf("%s has its package comment in two files, one of them %s", p.ImportPath, file)
			}
			doc = f.Doc.Text()
		}
		if len(p.GoFiles) > 0 && !runsIn.MatchString(doc) {
			t.Errorf("%s: its package comment has no line %q", p.ImportPath, "Runs in: ….")
		}
		if m := sentence.FindStringSubmatch(doc); len(p.GoFiles) > 0 && (m == nil || m[1] != path.Base(p.ImportPath)) {
			t.Errorf("%s: its package comment begins %.60q, and not with a sentence on the package", p.ImportPath, doc)
		}
	}
}

// Names that promise nothing hold anything.
func TestPackageNames(t *testing.T) {
	for _, p := range packages(t) {
		if slices.Contains([]string{"util", "utils", "common", "helpers", "pkg", "misc", "base"}, path.Base(p.ImportPath)) {
			t.Errorf("%s: name the package for what it does", p.ImportPath)
		}
	}
}

// backticked finds what documents set in backticks.
var backticked = regexp.MustCompile("`([^`\n]+)`")

// braces are alternatives in a path: discovery/{handler,snapshot}.go.
var braces = regexp.MustCompile(`^(.*)\{([^{}]+)\}(.*)$`)

// documentedPaths returns what a document names in backticks that looks like a path
// of the repository: it begins with one of the top folders or is a file there.
func documentedPaths(text string, tops []string) []string {
	var paths []string
	for _, m := range backticked.FindAllStringSubmatch(text, -1) {
		top, _, nested := strings.Cut(strings.TrimPrefix(m[1], "./"), "/")
		if !nested || !slices.Contains(tops, top) {
			continue
		}
		all := []string{m[1]}
		if set := braces.FindStringSubmatch(m[1]); set != nil {
			all = nil
			for name := range strings.SplitSeq(set[2], ",") {
				all = append(all, set[1]+name+set[3])
			}
		}
		for _, p := range all {
			p = strings.TrimSuffix(strings.TrimPrefix(p, "./"), "/")
			if p, _, _ = strings.Cut(p, "#"); !strings.ContainsAny(p, " *{}<>$=:…") {
				paths = append(paths, p)
			}
		}
	}
	return paths
}

// documents returns the documents of the repository by their paths.
func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/samples/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
		if err != nil || len(names) == 0 {
			t.Fatalf("no documents %s: %v", pattern, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts[strings.TrimPrefix(filepath.ToSlash(name), root+"/")] = string(text)
		}
	}
	return texts
}

// anchors returns the anchors of a document's headings, as GitHub makes them.
func anchors(text string) (out []string) {
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		kept := regexp.MustCompile("[^a-z0-9 _-]").ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(kept, " ", "-"))
	}
	return out
}

// A link within the repository leads to a file, and to a heading of it.
func TestDocumentedLinks(t *testing.T) {
	texts := documents(t)
	for name, text := range texts {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(file))); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(texts[file]), anchor) {
				t.Errorf("%s links to %s, which has no such heading", name, m[1])
			}
		}
	}
}

// sources calls visit with the path and text of every Go file of the repository.
func sources(t *testing.T, visit func(name, text string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") {
			return err
		}
		text, err := os.ReadFile(name)
		visit(strings.TrimPrefix(filepath.ToSlash(name), root+"/"), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	// citation is a reference to sections of docs/wire.md in a comment.
	citation = regexp.MustCompile(`docs/wire\.md (\d+(?:\.\d+)?\b(?:, \d+(?:\.\d+)?\b)*)`)
	// unnamed is a reference to sections of a document that it does not name.
	unnamed = regexp.MustCompile(`\b[Cc]ontract,? \(?§?\d`)
	// section is a heading of docs/wire.md.
	section = regexp.MustCompile(`(?m)^##+ (\d+(?:\.\d+)?)\.? `)
)

// Every citation of docs/wire.md in the code names a section that is there.
func TestCitations(t *testing.T) {
	var sections []string
	for _, m := range section.FindAllStringSubmatch(documents(t)["docs/wire.md"], -1) {
		sections = append(sections, m[1])
	}
	lineBreak := regexp.MustCompile(`\n[\t ]*//[\t ]*`)
	cited := 0
	sources(t, func(name, text string) {
		text = lineBreak.ReplaceAllString(text, " ")
		if m := unnamed.FindString(text); m != "" {
			t.Errorf("%s cites %q…: write docs/wire.md and the section", name, m)
		}
		for _, m := range citation.FindAllStringSubmatch(text, -1) {
			for cite := range strings.SplitSeq(m[1], ", ") {
				cited++
				if !slices.Contains(sections, cite) {
					t.Errorf("%s cites section %s of docs/wire.md, which is not there", name, cite)
				}
			}
		}
	})
	if cited == 0 {
		t.Error("nothing cites docs/wire.md: does the test still know citations?")
	}
}

// namedFile is a Go file that a comment names, with the folders that it gives.
var namedFile = regexp.MustCompile(`(?:^|[\s("])((?:[A-Za-z0-9_.-]+/)*[A-Za-z0-9_-]+\.go)\b`)

// A Go file that a comment names exists: a bare name beside the comment, others
// from the root of the repository. Files of other modules begin with their domain.
func TestCommentsNameFiles(t *testing.T) {
	exists := map[string]bool{}
	sources(t, func(name, _ string) { exists[name] = true })
	sources(t, func(name, text string) {
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range f.Comments {
			for _, m := range namedFile.FindAllStringSubmatch(group.Text(), -1) {
				top, _, nested := strings.Cut(m[1], "/")
				if nested && strings.Contains(top, ".") || exists[m[1]] || exists[path.Join(path.Dir(name), m[1])] {
					continue
				}
				t.Errorf("%s names %s, which is not there", name, m[1])
			}
		}
	})
}

func TestDocumentedPathsExist(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	// Also the folders of the design, so that a document that names one which is
	// not there is caught.
	tops := []string{"gateway", "apiservice", "discovery", "backends", "deploy", "cmd", "internal", "resource", ".ci"}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(tops, e.Name()) && e.Name() != ".git" {
			tops = append(tops, e.Name())
		}
	}
	for name, text := range documents(t) {
		for _, p := range documentedPaths(text, tops) {
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(p))); err != nil {
				t.Errorf("%s names %s: %v", name, p, err)
			}
		}
	}
}

// A metric of Portico that a document names is one that a process shows.
func TestDocumentedMetricsExist(t *testing.T) {
	var product strings.Builder
	sources(t, func(name, text string) {
		if !strings.HasSuffix(name, "_test.go") {
			product.WriteString(text)
		}
	})
	for name, text := range documents(t) {
		for _, m := range regexp.MustCompile("`portico_((?:upstream_)?)([a-z0-9_]+)").FindAllStringSubmatch(text, -1) {
			if m[2] == "" || strings.HasSuffix(m[2], "_") || name == "CONTRIBUTING.md" { // an example
				continue
			}
			// Metrics of one sort may share the beginning of their names.
			if !strings.Contains(product.String(), `"portico_`+m[1]+m[2]+`"`) && !(m[1] != "" && strings.Contains(product.String(), `"`+m[2]+`"`)) {
				t.Errorf("%s names portico_%s%s, which no process shows", name, m[1], m[2])
			}
		}
	}
}

// A promise in a document names the test that shows it, by a name that is there.
func TestDocumentedTestsExist(t *testing.T) {
	var tests strings.Builder
	sources(t, func(name, text string) {
		if strings.HasSuffix(name, "_test.go") {
			tests.WriteString(text)
		}
	})
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z][A-Za-z0-9]*)(…?)`")
	for name, text := range documents(t) {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			function := "\nfunc " + m[1]
			if m[2] == "" {
				function += "("
			}
			if !strings.Contains(tests.String(), function) {
				t.Errorf("%s names %s, which is no test", name, m[1])
			}
		}
	}
}

func TestDocumentedPaths(t *testing.T) {
	text := "see `gateway/proxy.go`, `cmd/`, `./discovery/` and `gateway`, run `go run ./cmd/portico up`, GET `/api/v1`,\n" +
		"`testdata/script/*.txtar`, `cmd/portico/testdata/*.txtar`, `apis/x/y`, `resource/doc.go#L3`, `gateway/{a,b}.go`"
	got := documentedPaths(text, []string{"gateway", "cmd", "discovery", "resource"})
	if want := []string{"gateway/proxy.go", "cmd", "discovery", "resource/doc.go", "gateway/a.go", "gateway/b.go"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
