package custom

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// columnTypes are the types of columns.
var columnTypes = []string{"string", "integer", "number", "boolean", "date"}

// columnPaths are paths of published definitions, and others of every form.
var columnPaths = []string{
	".metadata.creationTimestamp", ".metadata.name", ".spec.n", ".spec.f", ".spec.b", ".spec.none", ".spec", ".spec.l", ".spec.text", ".",
	`.status.conditions[?(@.type=="Ready")].status`, `.status.conditions[?(@.type == 'Ready')].message`, ".status.conditions[-1:].type",
	".status.conditions[*].type", ".spec.l[0]", ".spec.l[-1]", ".spec.l[-2]", ".spec.l[7]", ".spec.l[1:3]", ".spec.l[0:4:2]", ".spec.l[::0]", ".spec.l[:-1]",
	".spec.l[2:1]", ".spec.l[1:1]", ".spec['n','f']", ".spec.l[0,2]", ".spec.l[0,9]", "..type", "..n", ".status..type", ".spec.*", ".spec.text.*", ".spec.n.*", "..*",
	".spec.l[?(@>1)]", ".spec.l[?(@.a)]", ".status.conditions[?(@.lastTransitionTime)].type", ".status.conditions[?(@.n>=2)].type", ".status.conditions[?(@.n<2.5)].type",
	".status.conditions[?(@.type!=@.status)].type", ".status.conditions[?(@..x)].type", ".status.conditions[?(@.x[0])].type", ".status.conditions[?(@.type[0])].type", ".spec[?(@.n)]",
	`.metadata.annotations.example\.com/a`, `.metadata.annotations['example\.com/a']`, ".spec.null", ".spec.null.x", ".spec.null[0]", ".spec.null[?(@.x)]", ".spec}text{.spec.n", ".spec.n}{.spec.l[9]",
	`."x"`, ".spec 'x'", ".spec.n 5", ".spec.n true", ".spec.n 1.5", ".spec.l[?(@=~1)]", ".spec.l[?(@.x && 1)]", ".spec.date", ".spec.l[a]", ".spec[", ".spec.l[?(1)]", ".spec end",
}

// columnObject is an object with values of every form.
func columnObject() map[string]any {
	condition := func(kind, status string, n any) any {
		return map[string]any{"type": kind, "status": status, "n": n, "x": []any{int64(1)}}
	}
	return map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing",
		"metadata": map[string]any{"name": "a", "creationTimestamp": "2020-01-01T00:00:00Z", "annotations": map[string]any{"example.com/a": "b"}},
		"spec": map[string]any{
			"n": int64(3), "f": 2.5, "b": true, "text": "añb", "null": nil, "date": "2020-01-01T00:00:00Z",
			"l": []any{int64(1), int64(2), int64(3), int64(4)}, "deep": map[string]any{"type": "inner"},
		},
		"status": map[string]any{"conditions": []any{condition("Ready", "True", int64(1)), condition("Other", "Other", int64(2)), condition("Last", "False", 2.25)}},
	}
}

// upstreamCells returns the cells of upstream's converter; ok is false if it panics.
func upstreamCells(own []apiextensionsv1.CustomResourceColumnDefinition, object map[string]any) (cells []any, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	tables, _ := tableconvertor.New(own)
	// An object with items is a list to upstream.
	table, err := tables.ConvertToTable(context.Background(), single{&unstructured.Unstructured{Object: object}}, nil)
	if err != nil {
		return nil, false
	}
	return table.Rows[0].Cells, true
}

// single is an object that is no list, whatever its field items is.
type single struct{ *unstructured.Unstructured }

// IsList implements runtime.Unstructured.
func (single) IsList() bool { return false }

// changesItsPath reports whether upstream's evaluation of a path changes the path, so that its results depend on
// earlier ones.
func changesItsPath(path string) bool {
	return strings.Contains(path, "range") || strings.Contains(path, "end")
}

// compareColumns compares the cells of paths with upstream's. Upstream visits maps in any order.
func compareColumns(t *testing.T, object map[string]any, paths ...string) {
	t.Helper()
	for _, path := range paths {
		var own []apiextensionsv1.CustomResourceColumnDefinition
		for _, kind := range columnTypes {
			own = append(own, apiextensionsv1.CustomResourceColumnDefinition{Name: kind, Type: kind, JSONPath: path})
		}
		headers, columns := newColumns(own)
		for i := range columns {
			got := cells(columns[i:i+1], &unstructured.Unstructured{Object: object})
			same := changesItsPath(path) || CheckPath(path) != nil
			var want []any
			for try := 0; !same && try < 500; try++ {
				var ok bool
				if want, ok = upstreamCells(own[i:i+1], object); !ok {
					break
				}
				same = reflect.DeepEqual(got, want)
			}
			if !same && want != nil {
				t.Errorf("%s as %s: %#v, upstream has %#v", path, own[i].Type, got, want)
			}
		}
		if tables, _ := tableconvertor.New(own); len(path) <= MaxPathLength {
			empty, err := tables.ConvertToTable(context.Background(), &unstructured.Unstructured{}, nil)
			if err != nil || !reflect.DeepEqual(empty.ColumnDefinitions, headers) {
				t.Errorf("%s: headers %v, upstream has %v %v", path, headers, empty.ColumnDefinitions, err)
			}
		}
	}
}

// Columns have the cells and headers that upstream's converter makes.
func TestColumnsAsUpstream(t *testing.T) {
	t.Parallel()
	for _, path := range columnPaths {
		compareColumns(t, columnObject(), path)
	}
	parts := []string{".spec", ".status", ".conditions", ".l", ".n", ".deep", ".type", ".*", "..", "[0]", "[-1]", "[1:]", "[*]", "['n','l']", "[0,1]", "[?(@.n)]", "[?(@.n==2)]", "[?(@>2)]", "[?(@.type=='Ready')]", "}{", " "}
	r := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		path := "."
		for range 1 + r.IntN(5) {
			path += parts[r.IntN(len(parts))]
		}
		compareColumns(t, columnObject(), strings.Replace(path, "..", ".", 1))
	}
}

// FuzzColumns compares any path with upstream's converter.
func FuzzColumns(f *testing.F) {
	for _, path := range columnPaths {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if len(path) > MaxPathLength {
			return
		}
		compareColumns(t, columnObject(), path)
	})
}

// A path that visits too many values makes a cell that says so, and the cells of the other columns are made.
func TestColumnsAreBounded(t *testing.T) {
	t.Parallel()
	chain := map[string]any{}
	for range 100 {
		chain = map[string]any{"a": chain}
	}
	object := map[string]any{
		"metadata": map[string]any{"name": "x"}, "spec": chain, "n": int64(7), "texts": slices.Repeat([]any{strings.Repeat("x", 1000)}, 2000),
	}
	union := "['a'" + strings.Repeat(",'a'", 9) + "]"
	for path, want := range map[string]any{
		".spec" + strings.Repeat(union, 7):         invalidCell,
		".spec..a..a..a..a..a":                     invalidCell,
		".texts":                                   invalidCell,
		".texts[*].*":                              invalidCell,
		"." + strings.Repeat("@", 1_400_000):       invalidCell, // the parser would overflow the stack
		".spec" + strings.Repeat("[?(@.a)]", 2000): invalidCell,
		".texts[0]":                                strings.Repeat("x", 1000),
	} {
		_, columns := newColumns([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: path}, {Name: "B", Type: "integer", JSONPath: ".n"}})
		got := cells(columns, &unstructured.Unstructured{Object: object})
		if !reflect.DeepEqual(got, []any{"x", want, int64(7)}) {
			t.Errorf("%.40s: %.100s, want %.100s and 7", path, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
	own := slices.Repeat([]apiextensionsv1.CustomResourceColumnDefinition{{Name: "A", Type: "string", JSONPath: ".texts[0:500]"}}, 5000)
	_, columns := newColumns(own)
	size := 0
	for _, cell := range cells(columns, &unstructured.Unstructured{Object: object})[1:] {
		size += len(cell.(string))
	}
	if most := maxRowVisits*bytesPerVisit + len(own)*len(invalidCell); size > most {
		t.Errorf("a row of %d columns has %d bytes, more than %d", len(own), size, most)
	}
}

// Paths that multiply are refused, and paths of one descent and a union or two are not.
func TestPathsThatMultiply(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"..a": "", "..a['b','c']": "", "..*[0,1,2]": "", `.status.conditions[?(@.type=="Ready")].status`: "", ".a[": "", ".a['b','c']['d','e']": "",
		"..a..b": `at most one ".."`, ".a[?(@..b)]..c": `at most one ".."`, ".a}{..b}{..c": `at most one ".."`,
		".a" + strings.Repeat("['b','c','d','e','f']", 3): "multiplied, are 125 and may be 100",
		"." + strings.Repeat("a", MaxPathLength):          "at most 4096 bytes",
	} {
		if err := CheckPath(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %v, want %q", path, err, want)
		}
	}
}

func BenchmarkColumns(b *testing.B) {
	var own []apiextensionsv1.CustomResourceColumnDefinition
	for _, path := range []string{`.status.conditions[?(@.type=="Ready")].status`, `.status.conditions[?(@.type=="Ready")].reason`, ".spec.n", ".spec.text", ".metadata.creationTimestamp"} {
		own = append(own, apiextensionsv1.CustomResourceColumnDefinition{Name: path, Type: "string", JSONPath: path})
	}
	_, columns := newColumns(own)
	tables, err := tableconvertor.New(own)
	if err != nil {
		b.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: columnObject()}
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			cells(columns, u)
		}
	})
	b.Run("upstream", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := tables.ConvertToTable(context.Background(), single{u}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
