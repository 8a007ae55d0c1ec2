// Package cmd has no code: its tests check the rules of the repository that no compiler checks.
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
	{"resource/cbor", 0, 0},
	{"resource/egress", 0, 0},
	{"resource/fairshare", 0, 0},
	{"resource/loop", 1, 0},
	{"resource/client", 1, 1},
	{"resource/etcd", 1, 0},
	{"resource/encryption", 1, 1},
	{"internal/testing/await", 0, 0},
	{"internal/testing/fieldtest", 1, 0},
	{"internal/testing/issuertest", 0, 0},
	{"internal/testing/kubelettest", 0, 0},
	{"internal/testing/kmstest", 0, 0},
	{"internal/testing/etcdtest", 0, 0},
	{"internal/testing/memstore", 1, 0},
	{"resource/authn", 1, 0},
	{"resource/authz", 1, 0},
	{"resource/podrefs", 1, 0},
	{"resource/audit", 1, 0},
	{"resource/tracing", 1, 0},
	{"internal/testing/storetest", 1, 0},
	{"internal/testing/tools", 0, 0},
	{"internal/testing/tracetest", 0, 0},
	{"internal/testing/history", 1, 0},
	{"resource/response", 1, 0},
	{"internal/testing/httpstore", 1, 2},
	{"internal/testing/kindtest", 1, 2},
	{"resource/rest", 1, 1},
	{"resource/watchcache", 1, 2},
	{"resource/admission", 1, 2},
	{"resource/masterlease", 1, 2},
	{"resource/metastream", 1, 3},
	{"resource/serve", 1, 3},
	{"resource/identity", 1, 4},
	{"apiservice", 2, 0},
	{"apiservice/availability", 2, 0},
	{"discovery", 2, 0},
	{"discovery/openapi", 2, 1},
	{"discovery/rest", 2, 1},
	{"discovery/sources", 2, 2},
	{"backends/process", 2, 0},
	{"gateway/access", 3, 0},
	{"gateway/accesslog", 3, 0},
	{"gateway/authentication", 3, 0},
	{"gateway/authorization", 3, 0},
	{"gateway/flow", 3, 0},
	{"gateway/installation", 3, 0},
	{"gateway/upstream", 3, 0},
	{"gateway/lastgood", 3, 0},
	{"gateway/proxy", 3, 1},
	{"gateway/routing", 3, 2},
	{"gateway/registration", 3, 3},
	{"gateway/openapi", 3, 3},
	{"gateway", 3, 4},
	{"backends/core/garbage", 3, 0},
	{"backends/core/quota", 3, 1},
	{"backends/core/kinds", 3, 2},
	{"backends/core/controllers", 3, 2},
	{"backends/core/plugins", 3, 3},
	{"backends/core/pods", 3, 2},
	{"backends/core/kubelet", 3, 2},
	{"backends/core/services", 3, 2},
	{"backends/core", 3, 4},
	{"backends/crd/prevalidate", 3, 0},
	{"backends/crd/custom", 3, 1},
	{"backends/crd", 3, 2},
	{"cmd/internal", 4, 0},
	{"cmd/portico", 4, 1},
	{"cmd/attack", 4, 1},
	{"cmd/e2e", 4, 1},
	{"cmd", 4, 1},
}

// place returns the index of the row of a package; -1 without one.
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
		return !strings.HasPrefix(from, "cmd/internal/") || strings.HasPrefix(to, "resource") ||
			from == "cmd/internal/testtools" && to == "internal/testing/await"
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
		{"backends/crd", "backends/crd/custom", true},
		{"backends/crd/custom", "backends/crd", false},
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
	"github.com/gin-gonic/gin":                                        {"gateway", "resource/serve"},
	"net/http/httputil":                                               {"gateway/proxy/proxy.go"},
	"go.etcd.io/etcd/client/v3":                                       {"resource/etcd"},
	"go.etcd.io/etcd/server/v3":                                       {"cmd/internal/embedetcd", "internal/testing/etcdtest"},
	"github.com/golang-jwt/jwt":                                       {"resource/authn"},
	"go.opentelemetry.io/otel":                                        {"resource/tracing"},
	"k8s.io/apiserver/pkg/audit":                                      {"resource/audit"},
	"k8s.io/apiserver/pkg/endpoints/request":                          {"gateway/flow", "backends/core/kinds"},
	"k8s.io/apiserver/pkg/registry/rest":                              {"backends/core/kinds"},
	"k8s.io/kubernetes":                                               {"backends/core", "backends/core/kinds", "backends/core/plugins", "backends/core/quota", "discovery/openapi/definitions.go", "gateway/access/policy.go"},
	"k8s.io/apiserver/pkg/server/mux":                                 {"gateway/flow"},
	"k8s.io/apiserver/pkg/server/flagz":                               {"gateway"},
	"k8s.io/apiserver/pkg/server/statusz":                             {"gateway"},
	"k8s.io/apiserver/pkg/server/egressselector":                      {"resource/egress"},
	"k8s.io/apiserver/pkg/server/options/encryptionconfig":            {"resource/encryption"},
	"k8s.io/apiserver/plugin/pkg/authenticator":                       {"gateway/authentication"},
	"k8s.io/apiserver/pkg/server/options/authenticationconfig":        {"gateway/authentication"},
	"k8s.io/apiserver/plugin/pkg/audit":                               {"resource/audit"},
	"k8s.io/apiserver/plugin/pkg/authorizer":                          {"resource/admission", "gateway/authorization"},
	"k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics": {"gateway/authorization"},
	"gopkg.in/natefinch/lumberjack.v2":                                {"resource/audit", "cmd/internal/supervise"},
	"github.com/hashicorp/golang-lru":                                 {"resource/authn", "resource/bytelru", "discovery/openapi", "backends/core/garbage"},
}

// forbidden are packages that no package may import, tests included: Portico replaces them. Of what lies below them
// only what has a door may be.
var forbidden = []string{
	"k8s.io/apiserver/pkg/server",
	"k8s.io/apiserver/pkg/registry",
	"k8s.io/apiserver/pkg/endpoints",
}

// below reports whether an import path is module or lies below it.
func below(imp, module string) bool { return imp == module || strings.HasPrefix(imp, module+"/") }

// hasDoor reports whether a package is one of doors or lies below one.
func hasDoor(imp string) bool {
	for module := range doors {
		if below(imp, module) {
			return true
		}
	}
	return false
}

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
				if below(imp, module) && !hasDoor(imp) {
					t.Errorf("%s imports %s", p.ImportPath, imp)
				}
			}
		}
	}
}

// redirecting are functions and types that make a client that follows redirects.
var redirecting = regexp.MustCompile(`\bhttp\.(Client\{|DefaultClient|Get\(|Head\(|Post\(|PostForm\()|\bnew\(http\.Client\)`)

// configured are functions that make a client of a rest.Config, and refusing are functions that make it refuse redirects.
var configured = regexp.MustCompile(`\.(LoadKubeconfig|HTTPClientFor|RESTClientFor|UnversionedRESTClientFor|New(DiscoveryClient)?ForConfig|NewClientManager|NewDefaultAuthenticationInfoResolver)\(`)

var refusing = regexp.MustCompile(`egress\.RefuseRedirects|admission\.BoundAnswers\(`)

// elsewhere are files with a rest.Config that refuses redirects already: the core server's own, with the transport of
// resource/client, and the one for admission webhooks, which WebhookClients wraps.
var elsewhere = []string{
	"backends/core/drain.go", "backends/core/garbagecollector.go", "backends/core/controllers/env.go", "backends/core/controllers/mapper.go", "backends/core/controllers/podowners.go",
	"backends/core/controllers/validatingadmissionpolicystatus.go",
	"backends/core/controllers/storageversionmigrator.go", "resource/admission/configuration.go",
}

// No client of the product follows redirects: resource/egress makes each http.Client, and clients of a rest.Config have its transport.
func TestClientsFollowNoRedirects(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.short(), "cmd/e2e") || strings.HasPrefix(p.short(), "internal/testing") || p.short() == "cmd/internal/testtools" {
			continue // tests
		}
		for _, name := range p.GoFiles {
			file := path.Join(p.short(), name)
			text, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if made := redirecting.Find(text); made != nil && p.short() != "resource/egress" {
				t.Errorf("%s has %s: make clients by egress.Client", file, made)
			}
			if made := configured.Find(text); made != nil && !slices.Contains(elsewhere, file) && !refusing.Match(text) {
				t.Errorf("%s has %s: Wrap the rest.Config by egress.RefuseRedirects", file, made)
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
