package rest

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// protobufMagic opens every protobuf envelope (contract 3.1).
const protobufMagic = "k8s\x00"

// Tags of the length-delimited protobuf fields used here: number<<3 | 2.
const (
	tagField1 = 1<<3 | 2
	tagField2 = 2<<3 | 2
	tagField3 = 3<<3 | 2
	tagField4 = 4<<3 | 2
)

var errEnvelope = errors.New("malformed protobuf envelope")

// body is a response body in pieces, so that lists are sent from the bytes of
// their items without being put together first.
type body struct {
	chunks [][]byte
	size   int
}

func bodyOf(data []byte) *body { return &body{chunks: [][]byte{data}, size: len(data)} }

func (b *body) add(chunk []byte) {
	b.chunks = append(b.chunks, chunk)
	b.size += len(chunk)
}

// join returns the body in one piece.
func (b *body) join() []byte {
	if len(b.chunks) == 1 {
		return b.chunks[0]
	}
	return bytes.Join(b.chunks, nil)
}

// finish turns JSON into what the format asks for: YAML, indented, or ended by
// a line feed. Protobuf stays as it is.
func (b *body) finish(f format) (*body, error) {
	switch {
	case f.media == mediaProtobuf:
		return b, nil
	case f.media == mediaYAML:
		data, err := yaml.JSONToYAML(b.join())
		if err != nil {
			return nil, fmt.Errorf("encode YAML: %w", err)
		}
		return bodyOf(data), nil
	case f.pretty:
		var buf bytes.Buffer
		buf.Grow(b.size * 2)
		if err := json.Indent(&buf, b.join(), "", "  "); err != nil {
			return nil, fmt.Errorf("indent JSON: %w", err)
		}
		if !bytes.HasSuffix(buf.Bytes(), []byte("\n")) {
			buf.WriteByte('\n')
		}
		return bodyOf(buf.Bytes()), nil
	}
	if last := b.chunks[len(b.chunks)-1]; !bytes.HasSuffix(last, []byte("\n")) {
		b.add([]byte("\n"))
	}
	return b, nil
}

// jsonList puts a JSON list together from its items. bare has apiVersion and
// kind left out of them.
func jsonList(gvk schema.GroupVersionKind, head metav1.ListMeta, items [][]byte, bare *schema.GroupVersionKind) (*body, error) {
	start, err := json.Marshal(struct {
		Kind       string          `json:"kind"`
		APIVersion string          `json:"apiVersion"`
		Metadata   metav1.ListMeta `json:"metadata"`
	}{gvk.Kind, gvk.GroupVersion().String(), head})
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	b := &body{chunks: make([][]byte, 0, 2*len(items)+2)}
	b.add(append(start[:len(start)-1], `,"items":[`...))
	var prefix []byte
	if bare != nil {
		prefix = typeMetaPrefix(*bare)
	}
	comma, commaBrace, brace := []byte(","), []byte(",{"), []byte("{")
	for i, item := range items {
		rest, cut := bytes.CutPrefix(item, prefix)
		switch {
		case bare == nil:
			cut = false
		case !cut:
			if rest, err = dropTypeMeta(item); err != nil {
				return nil, err
			}
		}
		switch {
		case cut && i > 0:
			b.add(commaBrace)
		case cut:
			b.add(brace)
		case i > 0:
			b.add(comma)
		}
		b.add(rest)
	}
	b.add([]byte("]}\n"))
	return b, nil
}

// typeMetaPrefix is how the encoder of Go types opens an object that has
// anything besides kind and apiVersion.
func typeMetaPrefix(gvk schema.GroupVersionKind) []byte {
	return fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, gvk.Kind, gvk.GroupVersion().String())
}

// dropTypeMeta leaves kind and apiVersion out of an object whose bytes do not
// open with them (somebody else wrote them).
func dropTypeMeta(data []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("read list item: %w", err)
	}
	delete(fields, "kind")
	delete(fields, "apiVersion")
	return json.Marshal(fields)
}

// protobufList puts an enveloped protobuf list together from its enveloped
// items: ListMeta is field 1 of every list message, the items are field 2.
func protobufList(gvk schema.GroupVersionKind, head metav1.ListMeta, items [][]byte) (*body, error) {
	headData, err := head.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode list: %w", err)
	}
	raws := make([][]byte, len(items))
	size := fieldSize(len(headData))
	for i, item := range items {
		raw, err := openEnvelope(item)
		if err != nil {
			return nil, err
		}
		raws[i] = raw
		size += fieldSize(len(raw))
	}
	start := appendEnvelopeStart(nil, gvk, size)
	start = appendField(start, tagField1, headData)
	b := &body{chunks: make([][]byte, 0, 2*len(items)+2)}
	b.add(start)
	for _, raw := range raws {
		b.add(appendFieldStart(nil, tagField2, len(raw)))
		b.add(raw)
	}
	b.add(appendEnvelopeEnd(nil))
	return b, nil
}

// envelope wraps a protobuf message.
func envelope(gvk schema.GroupVersionKind, raw []byte) []byte {
	data := make([]byte, 0, len(raw)+64+len(gvk.Group)+len(gvk.Version)+len(gvk.Kind))
	data = append(appendEnvelopeStart(data, gvk, len(raw)), raw...)
	return appendEnvelopeEnd(data)
}

// appendEnvelopeStart appends everything before a message of that size.
func appendEnvelopeStart(dst []byte, gvk schema.GroupVersionKind, size int) []byte {
	apiVersion := gvk.GroupVersion().String()
	dst = append(dst, protobufMagic...)
	dst = appendFieldStart(dst, tagField1, fieldSize(len(apiVersion))+fieldSize(len(gvk.Kind)))
	dst = appendField(dst, tagField1, apiVersion)
	dst = appendField(dst, tagField2, gvk.Kind)
	return appendFieldStart(dst, tagField2, size)
}

// appendEnvelopeEnd appends what follows the message: contentEncoding and
// contentType, which upstream writes even when they are empty.
func appendEnvelopeEnd(dst []byte) []byte { return append(dst, tagField3, 0, tagField4, 0) }

// openEnvelope returns the message in an envelope, not copied.
func openEnvelope(data []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(data, []byte(protobufMagic))
	if !ok {
		return nil, errEnvelope
	}
	var raw []byte
	for len(rest) > 0 {
		tag := rest[0]
		n, used := binary.Uvarint(rest[1:])
		if used <= 0 || tag&7 != 2 || tag&0x80 != 0 || n > uint64(len(rest)-1-used) {
			return nil, errEnvelope
		}
		value := rest[1+used : 1+used+int(n)]
		rest = rest[1+used+int(n):]
		if tag == tagField2 {
			raw = value
		}
	}
	return raw, nil
}

func appendFieldStart(dst []byte, tag byte, size int) []byte {
	return binary.AppendUvarint(append(dst, tag), uint64(size))
}

func appendField[T string | []byte](dst []byte, tag byte, value T) []byte {
	return append(appendFieldStart(dst, tag, len(value)), value...)
}

// fieldSize is the size of a field with a value of n bytes.
func fieldSize(n int) int {
	size := 2 + n
	for v := uint64(n); v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// appendFrame appends one watch event (contract 5.4). framed says that frames
// follow each other in one stream, so that protobuf needs its length prefix.
func appendFrame(dst []byte, m media, eventType string, object []byte, framed bool) []byte {
	if m == mediaProtobuf {
		objectSize := fieldSize(len(object))
		if framed {
			dst = binary.BigEndian.AppendUint32(dst, uint32(fieldSize(len(eventType))+fieldSize(objectSize)))
		}
		dst = appendField(dst, tagField1, eventType)
		dst = appendFieldStart(dst, tagField2, objectSize)
		return appendField(dst, tagField1, object)
	}
	dst = append(dst, `{"type":`...)
	dst = strconv.AppendQuote(dst, eventType)
	dst = append(dst, `,"object":`...)
	dst = append(dst, bytes.TrimRight(object, "\n")...)
	return append(dst, "}\n"...)
}
