package rest

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"portico/resource"
)

// messages is a message in a message and so on; at the bottom is text.
func messages(depth int, text string) []byte {
	data := []byte(text)
	for range depth {
		data = protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), data)
	}
	return data
}

func TestMessageDepth(t *testing.T) {
	for name, test := range map[string]struct {
		data []byte
		ok   bool
	}{
		"nothing":                           {nil, true},
		"as deep as it is":                  {messages(maxMessageDepth, ""), true},
		"deeper":                            {messages(maxMessageDepth+1, ""), false},
		"with what is no message around it": {append(append([]byte{0x08, 0x05, 0x0b, 0x11, 1, 2, 3, 4, 5, 6, 7, 8}, messages(maxMessageDepth+1, "")...), 0xff), false},
		"broken at the bottom":              {messages(maxMessageDepth+1, "\xff\xff"), false},
		"cut off":                           {messages(maxMessageDepth+1, "")[:2000], true},
		"text":                              {messages(1, strings.Repeat("rrrzzz\n\n\n\n***", 100_000)), true},
		"letters":                           {messages(1, strings.Repeat("b", 1_000_000)), true},
	} {
		if err := checkMessageDepth(test.data); (err == nil) != test.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Data that looks like messages by chance does not look like many in each other.
func TestMessageDepthOfNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		data := make([]byte, 200_000)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		object := &corev1.Secret{Data: map[string][]byte{"zeros": make([]byte, 1000), "noise": data, "tens": bytes.Repeat([]byte("\n"), 100_000)}}
		raw, err := object.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkMessageDepth(raw); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPatchedDepth(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for n, ok := range map[int]bool{maxDepth - 2: true, maxDepth - 1: false} {
		patch, err := parsePatch(types.JSONPatchType, []byte(`[{"op":"copy","from":"/x","path":"/y/z"}]`), nil, false)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := patch.apply([]byte(`{"x":` + deep(n) + `,"y":{}}`)); (err == nil) != ok {
			t.Errorf("%d levels: %v", n, err)
		}
	}
}

// A patch library that decodes level by level takes minutes and gigabytes.
func TestDeepMergeIsLinear(t *testing.T) {
	patch := strings.Repeat(`{"a":`, maxDepth-1) + `"` + strings.Repeat("x", 1<<20) + `"` + strings.Repeat("}", maxDepth-1)
	doc, err := parsePatch(types.MergePatchType, []byte(patch), nil, true)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := doc.apply([]byte(`{"a":{"b":1}}`)); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 64 {
		t.Errorf("%d MB were allocated", used)
	}
}

func TestPartialIsCaseSensitive(t *testing.T) {
	o, err := resource.Parse([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","Name":"b"},"Metadata":{"name":"c"}}`))
	if err != nil {
		t.Fatal(err)
	}
	partial, err := partialOf(&Kind{}, o)
	if err != nil || partial.Name != "a" {
		t.Errorf("%+v, %v", partial, err)
	}
}
