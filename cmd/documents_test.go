package cmd

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
	for _, pattern := range []string{"*.md", "docs/*.md", "deploy/*/*.md", "deploy/*/*/*.md"} {
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
	// What the commands of the README make is in no clone.
	made := []string{".git", "bin", "data"}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(tops, e.Name()) && !slices.Contains(made, e.Name()) {
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
			if m[2] == "" || strings.HasSuffix(m[2], "_") || name == "CONTRIBUTING.md" || m[2] == "slis" { // an example; a job of Prometheus
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
