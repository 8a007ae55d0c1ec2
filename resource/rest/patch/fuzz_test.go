package patch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// sameJSON compares documents as decoders see them.
func sameJSON(a, b []byte) bool {
	x, err := decodeValue(a)
	if err != nil {
		return false
	}
	y, err := decodeValue(b)
	return err == nil && reflect.DeepEqual(x, y)
}

// shallow keeps the reference implementations, which are slow in depth, quick.
func shallow(texts ...string) bool {
	for _, text := range texts {
		if strings.Count(text, "{")+strings.Count(text, "[") > 50 || len(text) > 4096 {
			return false
		}
	}
	return true
}

// Merge patches have the same result as with the library of kube-apiserver.
func FuzzMergePatch(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":"b"}`, `{"a":"c"}`}, {`{"a":{"b":1,"c":2}}`, `{"a":{"b":null,"d":{"e":null,"f":[null,{"g":null}]}}}`},
		{`{"a":[1,2]}`, `{"a":[{"b":null}]}`}, {`{"a":{}}`, `{"a":[{"b":null}]}`}, {`{"a":null}`, `{"a":{"b":null}}`},
		{`{"n":1.10,"m":12345678901234567890}`, `{"n":1e400}`}, {`{"a":1,"a":2}`, `{"b":1,"b":null}`}, {`{"é":"\ud83d"}`, `{"\u00e9":"<"}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, document, patch string) {
		if !shallow(document, patch) || !json.Valid([]byte(document)) || !strings.HasPrefix(strings.TrimSpace(document), "{") {
			return
		}
		doc, err := Parse(types.MergePatchType, []byte(patch), nil, true)
		if err != nil {
			return
		}
		got, err := doc.Apply([]byte(document))
		if err != nil {
			t.Fatal(err)
		}
		want, err := jsonpatch.MergePatch([]byte(document), []byte(patch))
		if err != nil || !sameJSON(got, want) {
			t.Fatalf("%s merged into %s: %s, want %s (%v)", patch, document, got, want, err)
		}
	})
}

// FuzzJSONPatch compares with the library where that gives an answer: it panics
// at some patches, and null has two forms there.
func FuzzJSONPatch(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":[1,2,3]}`, `[{"op":"add","path":"/a/1","value":9},{"op":"add","path":"/a/-","value":8},{"op":"remove","path":"/a/-1"}]`},
		{`{"a":{"b":"c"}}`, `[{"op":"move","from":"/a/b","path":"/d"},{"op":"copy","from":"/a","path":"/a/e"},{"op":"test","path":"/a","value":{"e":{}}}]`},
		{`{"a/b":1,"~1":2}`, `[{"op":"replace","path":"/a~1b","value":1.50},{"op":"test","path":"/~01","value":2},{"op":"replace","path":"/new","value":"x"}]`},
		{`{"a":1}`, `[{"op":"replace","path":"","value":{"b":[[]]}},{"op":"add","path":"/b/0/0","value":{}},{"op":"test","path":"","value":{"b":[[{}]]}}]`},
		{`{"a":[]}`, `[{"op":"add","path":"/a/-1","value":1},{"op":"add","path":"/a/-2","value":2},{"op":"add","path":"/a/+1","value":3},{"op":"add","path":"x/a","value":3}]`},
		{`{"a":1}`, `[{"op":"copy","from":"/x","path":"/y"}]`}, {`{"a":1}`, `[{"op":"jump","path":"/y"}]`}, {`{"a":[{}]}`, `[{"op":"move","from":"/a/0","path":"/a/0/b"}]`},
		{`{"a":1}`, `[{"op":"replace","path":""}]`}, {`{"a":1}`, `[{"op":"test","path":""}]`}, {`{"a":{"b":1}}`, `[{"op":"move","from":"/a","path":"/a/b"}]`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, document, patch string) {
		if !shallow(document, patch) || !json.Valid([]byte(document)) || !strings.HasPrefix(strings.TrimSpace(document), "{") {
			return
		}
		doc, err := Parse(types.JSONPatchType, []byte(patch), nil, false)
		if err != nil {
			return
		}
		got, err := doc.Apply([]byte(document))
		want, refErr := reference([]byte(document), []byte(patch))
		switch {
		case strings.Contains(document+patch+string(got), "null") || strings.Contains(document+patch, `\`):
		case refErr != nil && strings.HasPrefix(refErr.Error(), "panic"):
		case (err == nil) != (refErr == nil) || err == nil && !sameJSON(got, want):
			t.Fatalf("%s applied to %s: %s (%v), want %s (%v)", patch, document, got, err, want, refErr)
		}
	})
}

// reference is what the library makes of a patch.
func reference(document, patch []byte) (out []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	p, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, err
	}
	return p.Apply(document)
}

// No strategic merge patch panics, and a patch that is applied again has the same result.
func FuzzStrategicPatch(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"data":null}`, `{"spec":{"$patch":"replace"}}`, `{"spec":{"ports":[{"$patch":"delete","port":1}]}}`, `{"spec":{"$retainKeys":["type"],"type":"X"}}`,
		`{"spec":{"$setElementOrder/ports":[{"port":1}]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["x"]}}`,
	} {
		f.Add([]byte(seed))
	}
	const document = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s","finalizers":["x"]},"spec":{"type":"Y","ports":[{"port":1,"name":"a"}]}}`
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := Parse(types.StrategicMergePatchType, data, &corev1.Service{}, true)
		if err != nil {
			return
		}
		first, err1 := doc.Apply([]byte(document))
		second, err2 := doc.Apply([]byte(document))
		if (err1 == nil) != (err2 == nil) || string(first) != string(second) {
			t.Fatalf("%s (%v), then %s (%v)", first, err1, second, err2)
		}
	})
}
