package render

import (
	"bytes"
	"encoding/json"
	"testing"
)

// No form is longer than the bound, but for the quotes that YAML adds.
func FuzzIndentedSize(f *testing.F) {
	for _, seed := range []string{`{"b":1,"a":[{}]}`, `[[[[1,2],[],{}]]]`, `{"a":{"b":"w w w\n\n x","c":["\\\"{[,"]}}`, ` [ 1 , "\u2028" ] `} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if len(in) > 10000 || !json.Valid([]byte(in)) {
			return
		}
		data := []byte(in)
		var out bytes.Buffer
		if err := json.Indent(&out, data, "", "  "); err != nil {
			t.Fatal(err)
		}
		if size := indentedSize(data, JSONLines); int64(out.Len()) > size {
			t.Fatalf("indented it has %d bytes, said to be %d: %q", out.Len(), size, in)
		}
		flow, err := FlowYAML(data)
		if err != nil || bytes.Count(flow, []byte("\n")) != 1 {
			t.Fatalf("%q in one line is %q, %v", in, flow, err)
		}
	})
}
