package rest

import (
	"bytes"
	"encoding/binary"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// body is a response body of one object: the bytes that are shared by everybody
// who reads it, and a line feed behind them where they do not end with one.
type body struct {
	data     []byte
	lineFeed bool
}

func (b body) size() int {
	if b.lineFeed {
		return len(b.data) + 1
	}
	return len(b.data)
}

// appendTo appends the whole body to dst.
func (b body) appendTo(dst []byte) []byte {
	dst = append(dst, b.data...)
	if b.lineFeed {
		dst = append(dst, '\n')
	}
	return dst
}

// finish turns JSON into what the format asks for: YAML, indented, or ended by
// a line feed. Protobuf stays as it is, and so does the shape of what would get
// too long (maxGrowth).
func finish(data []byte, f format) (body, error) {
	switch {
	case f.media == mediaProtobuf:
		return body{data: data}, nil
	case f.media == mediaYAML:
		data, err := toYAML(data)
		if err != nil {
			return body{}, err
		}
		return body{data: data}, nil
	case f.pretty:
		var buf bytes.Buffer
		buf.Grow(len(data) * 2)
		if err := appendIndented(&buf, data, ""); err != nil {
			return body{}, err
		}
		data = buf.Bytes()
	}
	return body{data: data, lineFeed: !bytes.HasSuffix(data, []byte("\n"))}, nil
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
	dst = append(dst, `{"type":"`...)
	dst = append(dst, eventType...)
	dst = append(dst, `","object":`...)
	dst = append(dst, bytes.TrimRight(object, "\n")...)
	return append(dst, "}\n"...)
}
