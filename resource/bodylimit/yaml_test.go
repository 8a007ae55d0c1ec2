package bodylimit

import (
	"strings"
	"testing"

	decoder "sigs.k8s.io/yaml/goyaml.v2"
)

func TestCountYAML(t *testing.T) {
	t.Parallel()
	const many = exactFrom // of these documents all are scanned
	for name, test := range map[string]struct {
		document      string
		values, items int
	}{
		"a flow list":                 {"x: [" + strings.Repeat("a,", many) + "a]", many + 2, many + 1},
		"a flow map":                  {"x: {" + strings.Repeat("a: b,", many) + "}", many + 2, 0},
		"a block list":                {"x:\n" + strings.Repeat("- a\n", many), many + 1, many},
		"lists in each other":         {"x:\n" + strings.Repeat("- - - -\n", many), 4*many + 1, 4 * many},
		"a block map":                 {strings.Repeat("a: b\n", many), many, 0},
		"a block scalar":              {"x: |\n" + strings.Repeat("  a: [b, {c: - d}]\n\n", many) + "y: 1\n", 2, 0},
		"a block scalar in a list":    {"x:\n- y: >-\n" + strings.Repeat("    a: [b,\n", many) + "  z: 1\n- a\n", 5, 2},
		"a block scalar of an anchor": {"---\nx: &a |\n" + strings.Repeat(" [,\n", many) + "y: 1\n", 2, 0},
		"a plain scalar":              {"x: a" + strings.Repeat("\n  b, [c] {-d} e:f - ? #g", many) + "\n\ny: 1\n", 2, 0},
		"quotes":                      {"x: \"" + strings.Repeat("\\\"[,\\\\\n ", many) + "\"\ny: '" + strings.Repeat("''[,\n\n", many) + "'\n", 2, 0},
		"comments":                    {"a: 1 " + strings.Repeat("# a: [b,\n", many) + "b: 1", 2, 0},
		"commas in a comment":         {"a: [1, # " + strings.Repeat(",", many) + "\n2]", 3, 2},
		"after what is unknown":       {"a: !b |\n" + strings.Repeat(" ,\n", many), many + 1, many},
		"in UTF-16":                   {inUTF16("x: [" + strings.Repeat("a,", many) + "a]"), many + 2, many + 1},
		"a shifted block scalar":      {"? a\n  b: |\n" + strings.Repeat(",", many), many + 3, many},
	} {
		t.Run(name, func(t *testing.T) {
			if values, items := countYAML([]byte(test.document)); values != test.values || items != test.items {
				t.Errorf("%d values, %d elements, want %d and %d", values, items, test.values, test.items)
			}
		})
	}
}

// countDecoded counts the values of a decoded document.
func countDecoded(v any) (values, items int) {
	add := func(v any) {
		n, m := countDecoded(v)
		values, items = values+n, items+m
	}
	switch v := v.(type) {
	case decoder.MapSlice:
		for _, member := range v {
			values++
			add(member.Key)
			add(member.Value)
		}
	case []any:
		for _, element := range v {
			values++
			items++
			add(element)
		}
	}
	return values, items
}

// Whatever a document has, no fewer values are counted than its decoder makes.
func FuzzCountYAML(f *testing.F) {
	for _, seed := range []string{
		"", "a: 1", "a:\n- b\n- c: |\n    d: e\n   f: g\n", "? a\n: b", "? a\n  b: |\n  c", "{a: b, c: [d, 'e', \"f\"], ? g, h: }", "a: >\n\n   b\n  c: d\n", "---\n|\n a: b\n",
		"- - - a\n  - b\n-\n - c", "a: b\n c: d\n", "a: \"b\n c: [d\"\ne: 'f''g'", "&a b: *a\n", "a: [b\n,c: d # e\n]\n", "é: |\n é\n  b: c\n", "a: |2\n   b\n", "a:\n  - |\n   b\n  - c", "\"a\": {b: [c]}\n", "a\tb: c", "a: |\n\tb: c\n",
		"a: |\n     \n  b\nc: d", "a: |\n\n\n b\n", "- |\n b\n- c", "a: b #c\n  d: e", "[a]: |\n b", "a: {b: c}\n d: e", "{a: |\n b: c}", "a:\n b: |\n\n c: d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		var v decoder.MapSlice
		if strings.ContainsAny(document, "*") || unusual([]byte(document)) || decoder.Unmarshal([]byte(document), &v) != nil {
			return
		}
		values, items := countDecoded(v)
		if n, m := scanYAML([]byte(document)); n < values || m < items {
			t.Errorf("%q: %d values, %d elements, the decoder makes %d and %d", document, n, m, values, items)
		}
		if n, m := countIndicators([]byte(document)); n < values || m < items {
			t.Errorf("%q: %d signs, %d of elements, the decoder makes %d and %d", document, n, m, values, items)
		}
	})
}
