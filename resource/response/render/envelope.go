package render

import (
	"bytes"
	"encoding/binary"
	"errors"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ProtobufMagic opens every protobuf envelope (docs/wire.md 3.1).
const ProtobufMagic = "k8s\x00"

// Tags of length-delimited protobuf fields: number<<3 | 2.
const (
	TagField1 = 1<<3 | 2
	TagField2 = 2<<3 | 2
	TagField3 = 3<<3 | 2
	TagField4 = 4<<3 | 2
)

var errEnvelope = errors.New("malformed protobuf envelope")

// Envelope returns a protobuf message in an envelope.
func Envelope(gvk schema.GroupVersionKind, raw []byte) []byte {
	data := make([]byte, 0, len(raw)+64+len(gvk.Group)+len(gvk.Version)+len(gvk.Kind))
	data = append(AppendEnvelopeStart(data, gvk, len(raw)), raw...)
	return AppendEnvelopeEnd(data)
}

// AppendEnvelopeStart appends what precedes a message of size bytes.
func AppendEnvelopeStart(dst []byte, gvk schema.GroupVersionKind, size int) []byte {
	apiVersion := gvk.GroupVersion().String()
	dst = append(dst, ProtobufMagic...)
	dst = AppendFieldStart(dst, TagField1, fieldSize(len(apiVersion))+fieldSize(len(gvk.Kind)))
	dst = AppendField(dst, TagField1, apiVersion)
	dst = AppendField(dst, TagField2, gvk.Kind)
	return AppendFieldStart(dst, TagField2, size)
}

// AppendEnvelopeEnd appends what follows a message: contentEncoding and contentType,
// which upstream writes even if they are empty.
func AppendEnvelopeEnd(dst []byte) []byte { return append(dst, TagField3, 0, TagField4, 0) }

// OpenEnvelope returns the message in an envelope, without copying it.
func OpenEnvelope(data []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(data, []byte(ProtobufMagic))
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
		if tag == TagField2 {
			raw = value
		}
	}
	return raw, nil
}

// AppendFieldStart appends the tag and the size of a length-delimited field.
func AppendFieldStart(dst []byte, tag byte, size int) []byte {
	return binary.AppendUvarint(append(dst, tag), uint64(size))
}

// AppendField appends a length-delimited field.
func AppendField[T string | []byte](dst []byte, tag byte, value T) []byte {
	return append(AppendFieldStart(dst, tag, len(value)), value...)
}

// fieldSize is the size of a field with a value of n bytes.
func fieldSize(n int) int {
	size := 2 + n
	for v := uint64(n); v >= 0x80; v >>= 7 {
		size++
	}
	return size
}

// AppendFrame appends one watch event (docs/wire.md 5.4), in protobuf or JSON. framed is set
// if frames share one stream, so that protobuf needs a length prefix.
func AppendFrame(dst []byte, protobuf bool, eventType string, object []byte, framed bool) []byte {
	if protobuf {
		objectSize := fieldSize(len(object))
		if framed {
			dst = binary.BigEndian.AppendUint32(dst, uint32(fieldSize(len(eventType))+fieldSize(objectSize)))
		}
		dst = AppendField(dst, TagField1, eventType)
		dst = AppendFieldStart(dst, TagField2, objectSize)
		return AppendField(dst, TagField1, object)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, eventType...)
	dst = append(dst, `","object":`...)
	dst = append(dst, bytes.TrimRight(object, "\n")...)
	return append(dst, "}\n"...)
}
