package crd

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
)

// parseSeeds are texts, and whether they are plain enough for the parser.
var parseSeeds = map[string]bool{
	`{}`: true, " {\t\"a\" : [ ] ,\r\n\"b\":{ } } ": true, `{"a":[1,-2,0,1.5,-0.25,true,false,null,"x"]}`: true,
	`{"a":9223372036854775807,"b":-9223372036854775808}`: true, `{"a":"é\n\"\u00e9\ud83d\ude00","é":"\\"}`: true,
	`{"a":-0,"b":-0.0}`: true, `{"":""}`: true, `{"a":"\ud800"}`: true, "{\"a\":\"\xff\"}": true, "{\"a\":\"\x7f\"}": true,
	`{"a":9223372036854775808}`: false, `{"a":1e3}`: false, `{"a":1,"a":2}`: false, `{"a":1,"\u0061":2}`: false,
	`null`: false, `[]`: false, `"x"`: false, ``: false, `{`: false, `{"a"}`: false, `{"a":}`: false, `{"a":1,}`: false, `{,}`: false,
	`{"a":[1,]}`: false, `{"a":[1 2]}`: false, `{"a":01}`: false, `{"a":1.}`: false, `{"a":.5}`: false, `{"a":-}`: false, `{"a":+1}`: false,
	`{"a":tru}`: false, `{"a":nulL}`: false, "{\"a\":\"\n\"}": false, `{"a":"\x"}`: false, `{"a":"`: false, `{"a":"\`: false, `{a:1}`: false,
	`{} {}`: false, `{}x`: false, "{}\x00": false,
}

func TestParseObject(t *testing.T) {
	for text, want := range parseSeeds {
		if _, ok := parseObject([]byte(text)); ok != want {
			t.Errorf("%q: parsed %t", text, ok)
		}
	}
	for depth, want := range map[int]bool{maxParseDepth: true, maxParseDepth + 1: false} {
		text := strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)
		if _, ok := parseObject([]byte(text)); ok != want {
			t.Errorf("depth %d: parsed %t", depth, ok)
		}
		if _, err := decodeObject([]byte(text)); err != nil {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}

// What is parsed is what the general decoder decodes, without complaints.
func FuzzParseObject(f *testing.F) {
	for text := range parseSeeds {
		f.Add([]byte(text))
	}
	f.Add([]byte(gadget("a")))
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := parseObject(data)
		if !ok {
			return
		}
		var want map[string]any
		complaints, err := kjson.UnmarshalStrict(data, &want)
		if err != nil || len(complaints) > 0 || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n got %v\nwant %v (%v, %v)", data, got, want, err, complaints)
		}
	})
}

// A body that is parsed is what the general decoder makes of it.
func FuzzParseBody(f *testing.F) {
	want := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}
	f.Add([]byte(gadget("a")))
	for _, head := range []string{
		`"apiVersion":"example.com/v1","kind":"Gadget"`, `"apiVersion":"example.com/v1","kind":"Gadget","Kind":"X"`,
		`"kind":"Gadget","apiVersion":"example.com/v1","apiversion":null`, `"apiVersion":"v1","kind":"Gadget"`, `"kind":"Gadget"`,
		`"apiVersion":"example.com/v1","kind":"Gadget","items":[]`, `"apiVersion":"example.com/v1","kind":"Gadget","\u212aind":1`,
	} {
		f.Add([]byte(`{` + head + `,"metadata":{"name":"a"}}`))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := parseBody(data, want)
		if !ok {
			return
		}
		b := newBodies()
		obj, gvk, err := b.strictJSON.Decode(data, &want, nil)
		if err != nil || *gvk != want {
			t.Fatalf("%q is parsed, but %v: %v", data, gvk, err)
		}
		slow := obj.(*unstructured.Unstructured)
		slow.SetGroupVersionKind(*gvk)
		if !reflect.DeepEqual(got, slow) {
			t.Fatalf("%q\n got %v\nwant %v", data, got, slow)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	data := []byte(gadget("a"))
	for name, decode := range map[string]func() error{
		"parsed":  func() error { _, err := decodeObject(data); return err },
		"general": func() error { var o map[string]any; return kjson.UnmarshalCaseSensitivePreserveInts(data, &o) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
