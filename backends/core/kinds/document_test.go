package kinds

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"portico/resource/rest"
)

var update = flag.Bool("update", false, "write docs/kinds.md")

// docs/kinds.md lists the rows between two marks.
func TestDocumentListsTheRows(t *testing.T) {
	const begin, end = "<!-- rows -->\n", "<!-- end of rows -->\n"
	file := filepath.Join("..", "..", "..", "docs", "kinds.md")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatal("docs/kinds.md has no marks around the rows")
	}
	want := before + begin + documentRows() + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(data) != want {
		t.Error("docs/kinds.md differs from the rows: go test ./backends/core/kinds -run TestDocument -update")
	}
}

// documentRows returns the table of the rows, by group.
func documentRows() string {
	var b strings.Builder
	b.WriteString("| group/version | resource | kind | short | subresources |\n|---|---|---|---|---|\n")
	all := allKinds()
	slices.SortStableFunc(all, func(a, b *rest.Kind) int { return strings.Compare(a.Group, b.Group) })
	for _, k := range all {
		var subs []string
		for _, s := range k.Subresources {
			subs = append(subs, s.Name)
		}
		versions := strings.Join(k.Versions, ", ")
		if k.Group != "" {
			versions = k.Group + "/" + versions
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", versions, k.Resource, k.Kind, strings.Join(k.ShortNames, ", "), strings.Join(subs, ", "))
	}
	return b.String()
}
