package bodylimit

import (
	"strings"
	"testing"

	decoder "sigs.k8s.io/yaml/goyaml.v2"
)

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

// countYAML counts at least the values of the decoded document.
func FuzzCountYAML(f *testing.F) {
	for _, seed := range []string{
		"", "a: 1", "a:\n- b\n- c: |\n    d: e\n   f: g\n", "? a\n: b", "? a\n  b: |\n  c", "{a: b, c: [d, 'e', \"f\"], ? g, h: }", "a: >\n\n   b\n  c: d\n", "---\n|\n a: b\n",
		"- - - a\n  - b\n-\n - c", "a: b\n c: d\n", "a: \"b\n c: [d\"\ne: 'f''g'", "&a b: *a\n", "a: [b\n,c: d # e\n]\n", "é: |\n é\n  b: c\n",
		"\"a\": {b: [c]}\n", "a\tb: c", "a: |\n\tb: c\n", "[a]: |\n b", "a: {b: c}\n d: e", "{a: |\n b: c}",
		"{\"a\": [" + strings.Repeat("0,", exactFrom) + "1]}", "{a: '\"', b: [" + strings.Repeat("0,", exactFrom) + "1], c: '\"'}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, document string) {
		var v decoder.MapSlice
		if strings.ContainsAny(document, "*") || decoder.Unmarshal([]byte(document), &v) != nil {
			return
		}
		values, items := countDecoded(v)
		if n, m := countYAML([]byte(document)); n < values || m < items {
			t.Errorf("%q: %d values, %d elements, the decoder makes %d and %d", document, n, m, values, items)
		}
	})
}
