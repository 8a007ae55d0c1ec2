package bodylimit

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"

	decoder "sigs.k8s.io/yaml/goyaml.v2"
)

// echo returns a document with many aliases of a scalar of size bytes.
func echo(tag string, size, many int) string {
	return "a: &a " + tag + ` "` + strings.Repeat("eHh4", size/4) + "\"\nz: [" + strings.Repeat("*a,", many) + "]\n"
}

// bomb returns nested lists, each with ten aliases of the one before.
func bomb(levels int) string {
	text := "a0: &a0 [x]\n"
	for i := range levels {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return text
}

// chain returns objects that each double the one before.
func chain(links int) string {
	text := "a0: &a0 x\n"
	for i := range links {
		text += fmt.Sprintf("a%d: &a%d {l: *a%d, r: *a%d}\n", i+1, i+1, i, i)
	}
	return text
}

func inUTF16(text string) string {
	b := []byte("\xff\xfe")
	for _, u := range utf16.Encode([]rune(text)) {
		b = append(b, byte(u), byte(u>>8))
	}
	return string(b)
}

// Documents with aliases beyond the limit are rejected without expanding them.
func TestAliases(t *testing.T) {
	const (
		body      = 3 << 20
		megabytes = 256 // for a document of the largest size, of which every third byte is a value
	)
	words := strings.Repeat("all of *these are &not what *they seem\n  ", body/42)
	for name, test := range map[string]struct {
		document string
		tooLarge bool
	}{
		"nothing":               {"", false},
		"no alias":              {"a: [1, 2]", false},
		"the size of a body":    {"a: " + strings.Repeat("x", body), false},
		"many values":           {"[" + strings.Repeat("a,", body/2) + "]", false},
		"as in a manifest":      {"a: &a {labels: {app: x}}\nb: *a\nc: {<<: *a, d: e}\n", false},
		"at the limit":          {echo("", body/2-valueSize, 2), false},
		"above the limit":       {echo("", body/2-valueSize+4, 2), true},
		"one alias of much":     {echo("", body-valueSize, 1), false},
		"a long scalar":         {echo("", 64<<10, 3_000), true},
		"the longest scalar":    {echo("", body/2, body/6), true},
		"binary":                {echo("!!binary", 64<<10, 3_000), true},
		"in UTF-16":             {inUTF16(echo("", 64<<10, 3_000)), true},
		"a long number":         {"a: &a " + strings.Repeat("1_", body/4) + "\nz: [" + strings.Repeat("*a,", body/6) + "]", true},
		"as keys":               {strings.ReplaceAll(echo("", 64<<10, 3_000), "*a,", "{*a : 1},"), true},
		"of an anchor of a key": {"&a " + strings.Repeat("x", 1000) + ": [" + strings.Repeat("*a,", body/1000) + "]", true},
		"of merges":             {"a: &a {b: " + strings.Repeat("x", 64<<10) + "}\nz: [" + strings.Repeat("{<<: *a},", 3_000) + "]", true},
		"lists of lists":        {bomb(9), true},
		"lists of some lists":   {bomb(3), false},
		"doubled without end":   {chain(10_000), true},
		"doubled":               {chain(10), false},
		"small values":          {"a: &a {}\nz: [" + strings.Repeat("*a,", maxAliased/valueSize+1) + "]", true},
		"named again":           {"a: &a " + strings.Repeat("x", body/2) + "\nb: &a x\nz: [" + strings.Repeat("*a,", 1_000) + "]", false},
		"its own part":          {"a: &a [" + strings.Repeat("*a,", 100_000) + "]", false},
		"of nothing":            {strings.Repeat("&a *b ", 100_000), false},
		"words":                 {"a: |\n  " + words, false},
		"quoted words":          {"a: '" + words + "'", false},
		"commented words":       {"# " + strings.ReplaceAll(words, "\n", "\n#") + "\na: 1", false},
		"in the next document":  {"a: 1\n---\n" + echo("", 64<<10, 3_000), false},
		"invalid YAML":          {"a: [" + echo("", 64<<10, 3_000), false},
	} {
		t.Run(name, func(t *testing.T) {
			var start, end runtime.MemStats
			runtime.ReadMemStats(&start)
			err := checkAliases([]byte(test.document), maxAliased)
			runtime.ReadMemStats(&end)
			if errors.Is(err, ErrTooLarge) != test.tooLarge || !test.tooLarge && err != nil {
				t.Errorf("got %v, too large is %v", err, test.tooLarge)
			}
			if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > megabytes {
				t.Errorf("%d MB were allocated, the limit is %d", used, megabytes)
			}
		})
	}
}

// readable reports what the decoder can parse.
func TestReadable(t *testing.T) {
	for document, want := range map[string]bool{
		"": true, "a: 1": true, "[a, b]": true, "null": true, "!!null {a: b}": true, "!!null [a]": true, "a: *b": false, "{": false, "\xff": false,
	} {
		if got := readable([]byte(document)); got != want {
			t.Errorf("%q: readable is %v", document, got)
		}
	}
}

// weigh returns the bytes of text and the number of values in a decoded value.
func weigh(v any) (text, values int) {
	add := func(v any) {
		t, n := weigh(v)
		text, values = text+t, values+n
	}
	switch v := v.(type) {
	case map[any]any:
		for name, member := range v {
			add(name)
			add(member)
		}
	case []any:
		for _, element := range v {
			add(element)
		}
	case string:
		text = len(v)
	}
	return text, values + 1
}

// An accepted document, decoded, is no larger than the document and the limit of its aliases.
// The limit is small, so that small documents reach it.
func FuzzAliases(f *testing.F) {
	const limit = 1_000
	for _, seed := range []string{
		"", "a: 1", "a: &a {b: c}\nd: *a", echo("", 40, 8), echo("", 400, 8), echo("!!binary", 400, 3), bomb(2), chain(3), chain(7), inUTF16(echo("", 400, 8)),
		"&a x: [*a, *a, *a, *a]", "? &a [b]\n: *a", "a: &a {b: 0x1_0}\nc: {<<: [*a, *a], d: .nan}", "# *a *b *c\na: &a |\n  x\n  y\n\n# &b\nb: *a # *c\n", "%TAG !e! tag:yaml.org,2002:\n---\na: &a !e!binary eHh4\nb: *a\n",
		"- &a\n- *a\n-\n  - *a\n  # foot\n\n- *a\n", "a: &a \"\\L\\L\\L\\x41\"\nb: [*a, *a, *a, *a, *a]", "- &a a\n- !!set {*a : , *a : }\n", "&a {x: &b [*a, *b]}", "a:\n- &b c\n\n\n#\n- *b\n#\n\n#\nd: *b",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		err := checkAliases(document, limit)
		if err != nil {
			if !errors.Is(err, ErrTooLarge) {
				t.Logf("%q: %v", document, err)
			}
			return
		}
		var v any
		if decoder.Unmarshal(document, &v) != nil {
			return
		}
		text, values := weigh(v)
		// An escape may be shorter than its character; so may be, in UTF-16, any.
		if text+valueSize*values > (2+valueSize)*(len(document)+1)+limit {
			t.Errorf("%q: %d bytes, %d values", document, text, values)
		}
	})
}
