package render

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

func TestYAML(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for _, in := range []string{
		`{"b":1,"a":[],"c":{},"d":null,"e":true,"f":"true","g":"1","h":"","i":[{"x":"y\nz\n"},[1,2.5]]}`,
		`{"a":"` + "\u007f\u0085\u009f\u2028\ufeff\uffff" + `","b":"\u0000\ud83d\ude00"}`,
		`{"` + long + `":{"` + long + `":1}}`,
		`{"n":[9223372036854775807,-9223372036854775808,18446744073709551615,1e300,0.1,-0]}`,
	} {
		out, err := YAML([]byte(in))
		if err != nil {
			t.Errorf("%.60s: %v", in, err)
			continue
		}
		back, err := sigsyaml.YAMLToJSON(out)
		if err != nil || !sameValues(t, back, []byte(in)) {
			if !strings.Contains(in, long) { // which only the way back fails on
				t.Errorf("%.60s became %s (%v), that is %s", in, out, err, back)
			}
		}
	}
}

// sameValues compares documents and ignores the notation of numbers.
func sameValues(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	for data, v := range map[*[]byte]*any{&a: &x, &b: &y} {
		if err := json.Unmarshal(*data, v); err != nil {
			t.Fatalf("%v in %s", err, *data)
		}
	}
	return reflect.DeepEqual(x, y)
}

// Where the usual way works, the text is the same.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{`{"b":1,"a":[{}]}`, `{"x10":1,"x9":2,"A":"0x1","n":"null","m":"multi\nline\n","d":"2001-01-01"}`, `[1.0,1e5,-0,"~"]`, `{"é":"\u2028","t":"\t"}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if len(in) > 1000 || !json.Valid([]byte(in)) {
			return
		}
		got, err := YAML([]byte(in))
		if err != nil {
			t.Fatal(err)
		}
		// Escapes and control characters are where the usual way fails.
		if strings.ContainsFunc(in, func(r rune) bool { return r == '\\' || r > 0x7e || r < ' ' }) || strings.Contains(in, "e") {
			return
		}
		if want, err := sigsyaml.JSONToYAML([]byte(in)); err == nil && string(want) != string(got) {
			t.Fatalf("%s became\n%s, want\n%s", in, got, want)
		}
	})
}
