package jsonscan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	kjson "sigs.k8s.io/json"
)

// texts are JSON texts and others, and whether Decode decodes them.
var texts = map[string]bool{
	`{}`: true, " {\t\"a\" : [ ] ,\r\n\"b\":{ } } ": true, `{"a":[1,-2,0,1.5,-0.25,true,false,null,"x"]}`: true,
	`{"a":9223372036854775807,"b":-9223372036854775808}`: true, `{"a":"é\n\"\u00e9\ud83d\ude00","é":"\\"}`: true,
	`{"a":-0,"b":-0.0}`: true, `{"":""}`: true, `{"a":"\ud800"}`: true, "{\"a\":\"\xff\"}": true, "{\"a\":\"\x7f\"}": true,
	`{"a":9223372036854775808}`: false, `{"a":1e3}`: false, `{"a":1.5E-3}`: false, `{"a":1,"a":2}`: false, `{"a":1,"\u0061":2}`: false,
	`null`: true, `[]`: true, `"x"`: true, `-0.5`: true, `{"a":1e400}`: false,
	``: false, ` `: false, `{`: false, `{"a"}`: false, `{"a":}`: false, `{"a":1,}`: false, `{,}`: false,
	`{"a":[1,]}`: false, `{"a":[1 2]}`: false, `{"a":01}`: false, `{"a":1.}`: false, `{"a":.5}`: false, `{"a":-}`: false, `{"a":+1}`: false,
	`{"a":tru}`: false, `{"a":nulL}`: false, "{\"a\":\"\n\"}": false, `{"a":"\x"}`: false, `{"a":"\u12g4"}`: false, `{"a":"\u+123"}`: false,
	`{"a":"`: false, `{"a":"\`: false, `{a:1}`: false, `{} {}`: false, `{}x`: false, "{}\x00": false, "\x00": false, `[}`: false, `{]`: false,
}

func TestDecodeRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for text, want := range texts {
		if _, ok := Decode([]byte(text)); ok != want {
			t.Errorf("%q: decoded %t", text, ok)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"a":[`, depth/2) + "1" + strings.Repeat("]}", depth/2))
	}
	for depth, want := range map[int]bool{maxDecodeDepth: true, maxDecodeDepth + 2: false} {
		if _, ok := Decode(nested(depth)); ok != want {
			t.Errorf("depth %d: decoded %t", depth, ok)
		}
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
	for text := range texts {
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

// What is decoded is what sigs.k8s.io/json decodes without a complaint.
func FuzzDecode(f *testing.F) {
	for text := range texts {
		f.Add([]byte(text))
	}
	f.Add(sample())
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := Decode(data)
		if !ok {
			return
		}
		var want any
		complaints, err := kjson.UnmarshalStrict(data, &want)
		if err != nil || len(complaints) > 0 || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n got %v\nwant %v (%v, %v)", data, got, want, err, complaints)
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

func BenchmarkDecode(b *testing.B) {
	data := sample()
	b.Run("scanner", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := Decode(data); !ok {
				b.Fatal("not decoded")
			}
		}
	})
	b.Run("general", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(bytes.Clone(data), &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
