package bodylimit

import (
	"errors"
	"runtime"
	"strings"
	"testing"
)

// Bodies that would take hundreds of megabytes when decoded are rejected for next to
// nothing; the largest that objects are made of pass.
func TestMeasure(t *testing.T) {
	const body = 3 << 20
	text := strings.Repeat("a, [b] {c: d} - e ", body/20)
	list := func(of string, n int) string { return "[" + strings.Repeat(of+",", n-1) + of + "]" }
	for name, test := range map[string]struct {
		data, mediaType string
		target          Target
		want            error
	}{
		"nothing":                        {"", "", Structs, nil},
		"JSON of text":                   {`{"a":"` + text + `\",\\"}`, "application/json", Structs, nil},
		"JSON of values":                 {list("0", MaxValues-1), "", Maps, nil},
		"JSON of more":                   {list("0", MaxValues+1), "", Maps, ErrTooMany},
		"JSON of members":                {`{` + strings.Repeat(`"a":0,`, MaxValues) + `"a":0}`, "application/json; charset=utf-8", Structs, ErrTooMany},
		"JSON of a few structs":          {list("{}", MaxItems-1), "", Structs, nil},
		"JSON of structs":                {list("{}", MaxItems+1), "", Structs, ErrTooManyItems},
		"JSON of nulls":                  {`{"a":{},"b":` + list("null", MaxItems+1) + `}`, "", Structs, ErrTooManyItems},
		"JSON of nested arrays":          {strings.Repeat("[", body), "", Maps, errNested},
		"JSON of nested objects":         {strings.Repeat(`{"a":`, body/5), "", Structs, errNested},
		"JSON of arrays at the depth":    {strings.Repeat("[", maxArrays-1) + list("0", MaxValues), "", Maps, ErrTooMany},
		"JSON of brackets in text":       {`["` + strings.Repeat("[", body/2) + `",` + list("0", MaxValues) + "]", "", Maps, ErrTooMany},
		"a merge patch of nested arrays": {`{"a":` + strings.Repeat("[", body/2) + strings.Repeat("]", body/2) + "}", "application/merge-patch+json", Maps, errNested},
		"YAML of nested lists":           {"x: " + strings.Repeat("[", body), "application/yaml", Maps, errNested},
		"JSON cut off in text":           {`["\\",` + strings.Repeat("0,", MaxValues+1) + `"`, "", Maps, ErrTooMany},
		"JSON of nothing but quotes":     {strings.Repeat(`\`, 3) + strings.Repeat(`"`, body) + `,\`, "", Maps, nil},
		"a merge patch":                  {list("0", MaxValues+1), "application/merge-patch+json", Maps, ErrTooMany},
		"a JSON patch":                   {list("{}", MaxValues), "application/json-patch+json", Maps, ErrTooMany},
		"a strategic merge patch":        {list("{}", MaxItems+1), "application/strategic-merge-patch+json", Structs, ErrTooManyItems},
		"apply":                          {list("0", MaxValues+1), "application/apply-patch+yaml", Maps, ErrTooMany},
		"apply of JSON":                  {`{"a":` + list("0", MaxValues-10) + `,"b":"` + text + `"}`, "application/apply-patch+yaml", Maps, nil},
		"YAML of text":                   {"a: |\n  " + text[:100_000] + "\n", "application/yaml", Structs, nil},
		"YAML of much text":              {"a: |\n  " + text + "\n", "application/yaml", Structs, ErrTooMany},
		"YAML with quotes around lists":  {"{a: '\"', b: " + list("0", MaxValues) + ", c: '\"'}", "application/yaml", Maps, ErrTooMany},
		"YAML of a flow list":            {"x: " + list("a", body/2), "application/yaml", Structs, ErrTooMany},
		"YAML of a flow map":             {"x: {" + strings.Repeat("a: 0,", MaxValues) + "}", "application/yaml", Maps, ErrTooMany},
		"YAML of a flow map of nothing":  {"x: {" + strings.Repeat("a,", MaxValues) + "}", "application/yaml", Maps, ErrTooMany},
		"YAML of a block list":           {strings.Repeat("- \n", MaxValues+1), "application/yaml", Maps, ErrTooMany},
		"YAML of a block map":            {strings.Repeat("a:\n", MaxValues+1), "application/yaml", Maps, ErrTooMany},
		"YAML of keys":                   {strings.Repeat("? \n", MaxValues+1), "application/yaml", Maps, ErrTooMany},
		"YAML of structs":                {"x: " + list("{}", MaxItems+1), "application/yaml", Structs, ErrTooManyItems},
		"YAML of a list behind a tag":    {"!a " + list("a", MaxValues+1), "application/yaml", Maps, ErrTooMany},
		"YAML in UTF-16":                 {inUTF16("x: " + list("a", MaxValues+1)), "application/yaml", Maps, ErrTooMany},
		"YAML of aliases":                {bomb(9), "application/yaml", Maps, ErrTooLarge},
		"protobuf of messages":           {"k8s\x00" + string(many(body/2)), "application/vnd.kubernetes.protobuf", Structs, ErrTooMany},
		"CBOR of text":                   {"\xa1\x61a\x7a\x00\x2a\x00\x00" + text[:0x2a0000], "application/cbor", Structs, nil},
		"CBOR of control characters":     {"\xa1\x61a\x7a\x00\x20\x00\x00" + strings.Repeat("\x01", 0x200000), "application/cbor", Structs, errLongAsJSON},
		"CBOR of bytes to be encoded":    {"\xd7\x81\x5a\x00\x20\x00\x00" + text[:0x200000], "application/cbor", Structs, errLongAsJSON},
		"CBOR of floats":                 {"\x9f" + strings.Repeat("\xfb\x3f\xf1\x99\x99\x99\x99\x99\x9a", 150_000) + "\xff", "application/cbor", Maps, errLongAsJSON},
		"CBOR of values":                 {"\x9a\x00\x03\x0d\x3f" + strings.Repeat("\x01", MaxValues-1), "application/cbor", Maps, nil},
		"CBOR of more":                   {"\x9f" + strings.Repeat("\x01", MaxValues+1), "application/cbor", Maps, ErrTooMany},
		"CBOR of members":                {"\xba\x00\x03\x0d\x3f" + strings.Repeat("\x61a\x01", MaxValues-1), "application/cbor", Maps, nil},
		"CBOR of more members":           {"\xbf" + strings.Repeat("\x61a\x01", MaxValues), "application/apply-patch+cbor", Maps, ErrTooMany},
		"CBOR of structs":                {"\x99\x75\x31" + strings.Repeat("\xf6", MaxItems+1), "application/cbor", Structs, ErrTooManyItems},
		"CBOR of a list of structs":      {"\x9f" + strings.Repeat("\xf6", MaxItems+1), "application/cbor", Structs, ErrTooManyItems},
		"CBOR of nested arrays":          {strings.Repeat("\x81", body), "application/cbor", Maps, ErrTooMany},
		"a form":                         {strings.Repeat("a=b&", body/4), "application/x-www-form-urlencoded", Maps, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var start, end runtime.MemStats
			runtime.ReadMemStats(&start)
			size, err := Measure([]byte(test.data), test.mediaType, test.target)
			runtime.ReadMemStats(&end)
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || TooLarge(err) != (test.want != nil && test.want != errNested) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if err == nil && size.Memory() > 160<<20 {
				t.Errorf("it may take %d MB", size.Memory()>>20)
			}
			if used := (end.TotalAlloc - start.TotalAlloc) >> 20; used > 16 {
				t.Errorf("%d MB were allocated", used)
			}
		})
	}
}

// The cost of counting an ordinary body.
func BenchmarkMeasure(b *testing.B) {
	for name, body := range map[string][]byte{
		"2 KB": []byte(`{"a":[` + strings.Repeat(`{"name":"some-name","value":"v"},`, 60) + `{}]}`),
		"3 MB": []byte(`{"a":"` + strings.Repeat(`some text, `, 3<<20/11) + `"}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := Measure(body, "application/json", Structs); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
