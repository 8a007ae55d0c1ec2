package jsonscan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// texts are JSON texts, and texts that are none.
var texts = []string{
	`{}`, " {\t\"a\" : [ ] ,\r\n\"b\":{ } } ", `{"a":[1,-2,0,1.5,-0.25,true,false,null,"x"]}`,
	`{"a":9223372036854775807,"b":-9223372036854775808}`, `{"a":"é\n\"\u00e9\ud83d\ude00","é":"\\"}`,
	`{"a":-0,"b":-0.0}`, `{"":""}`, `{"a":"\ud800"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\x7f\"}",
	`{"a":9223372036854775808}`, `{"a":1e3}`, `{"a":1.5E-3}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`,
	`null`, `[]`, `"x"`, `-0.5`, `{"a":1e400}`,
	``, ` `, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`,
	`{"a":[1,]}`, `{"a":[1 2]}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":-}`, `{"a":+1}`,
	`{"a":tru}`, `{"a":nulL}`, "{\"a\":\"\n\"}", `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\u+123"}`,
	`{"a":"`, `{"a":"\`, `{a:1}`, `{} {}`, `{}x`, "{}\x00", "\x00", `[}`, `{]`,
}

func TestDepthIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"a":[`, depth/2) + "1" + strings.Repeat("]}", depth/2))
	}
	for depth, want := range map[int]bool{DefaultMaxDepth: true, DefaultMaxDepth + 2: false, 1 << 20: false} {
		var s Scanner
		s.Reset(nested(depth))
		s.Skip()
		if ok := s.End(); ok != want || want && s.Depth() != 0 {
			t.Errorf("depth %d: skipped %t, %v", depth, ok, s.Err())
		}
	}
}

// The scanner accepts what encoding/json accepts, and unquotes strings alike.
func FuzzScanner(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var s Scanner
		s.Reset(data)
		s.Skip()
		if ok := s.End(); ok != json.Valid(data) {
			t.Fatalf("%q: accepted %t (%v), encoding/json %t", data, ok, s.Err(), !ok)
		}
		s.Reset(data)
		if got := s.Text(); s.End() {
			var want string
			if err := json.Unmarshal(data, &want); err != nil || string(got) != want {
				t.Fatalf("%q: unquoted %q, want %q (%v)", data, got, want, err)
			}
		}
	})
}

// sample is an object of about 3.5 KB.
func sample() []byte {
	var steps, env []string
	for i := range 20 {
		steps = append(steps, fmt.Sprintf(`{"name":"step-%d","image":"registry.example.com/tools/runner:v1.%d","timeout":%d,"args":["--verbose","%032d"]}`, i, i, i+30, i))
		env = append(env, fmt.Sprintf(`"VARIABLE_%d":"value-%d"`, i, i))
	}
	return []byte(`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a","labels":{"app":"bench"}},` +
		`"spec":{"replicas":3,"env":{` + strings.Join(env, ",") + `},"steps":[` + strings.Join(steps, ",") + `]}}`)
}

func BenchmarkSkip(b *testing.B) {
	data := sample()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		var s Scanner
		s.Reset(data)
		if s.Skip(); !s.End() {
			b.Fatal(s.Err())
		}
	}
}
