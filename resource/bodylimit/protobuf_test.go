package bodylimit

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
)

// nested returns depth nested messages with text in the innermost.
func nested(depth int, text string) []byte {
	data := []byte(text)
	for range depth {
		data = protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), data)
	}
	return data
}

// many returns n empty messages.
func many(n int) []byte { return bytes.Repeat([]byte{2<<3 | byte(protowire.BytesType), 0}, n) }

// Deep nesting and too many messages are errors.
func TestCountProtobuf(t *testing.T) {
	for name, test := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":                        {nil, nil},
		"at the limit":                   {nested(maxMessageDepth, ""), nil},
		"deeper":                         {nested(maxMessageDepth+1, ""), ErrTooDeep},
		"within data that is no message": {append(append([]byte{0x08, 0x05, 0x0b, 0x11, 1, 2, 3, 4, 5, 6, 7, 8}, nested(maxMessageDepth+1, "")...), 0xff), ErrTooDeep},
		"broken at the bottom":           {nested(maxMessageDepth+1, "\xff\xff"), ErrTooDeep},
		"cut off":                        {nested(maxMessageDepth+1, "")[:2000], nil},
		"the largest number":             {many(MaxValues / emptyValues), nil},
		"more":                           {many(MaxValues/emptyValues + 1), ErrTooMany},
		"more in each other":             {nested(1, string(many(MaxValues/emptyValues))), ErrTooMany},
		"text":                           {nested(1, strings.Repeat("rrrzzz\n\n\n\n***", 100_000)), nil},
		"letters":                        {nested(1, strings.Repeat("b", 1_000_000)), nil},
	} {
		if _, err := countProtobuf(test.data); !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
}

// Random data is not counted as deeply nested messages.
func TestCountProtobufOfNoise(t *testing.T) {
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
		if _, err := countProtobuf(raw); err != nil {
			t.Fatal(err)
		}
	}
}
