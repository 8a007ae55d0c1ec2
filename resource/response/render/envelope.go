// Package render converts the JSON of objects to the forms that clients ask for: indented
// JSON, YAML, and the protobuf envelope.
//
// Runs in: gateway, core, crd.
package render

import (
	"bytes"
	"encoding/binary"
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ProtobufMagic is the prefix of a protobuf envelope (docs/wire.md 3.1).
const ProtobufMagic = "k8s\x00"

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
	dst = AppendFieldStart(dst, 1, fieldSize(len(apiVersion))+fieldSize(len(gvk.Kind)))
	dst = append(AppendFieldStart(dst, 1, len(apiVersion)), apiVersion...)
	dst = append(AppendFieldStart(dst, 2, len(gvk.Kind)), gvk.Kind...)
	return AppendFieldStart(dst, 2, size)
}

// AppendEnvelopeEnd appends what follows a message: contentEncoding and contentType, which
// upstream writes also if they are empty.
func AppendEnvelopeEnd(dst []byte) []byte {
	return AppendFieldStart(AppendFieldStart(dst, 3, 0), 4, 0)
}

// OpenEnvelope returns the message in an envelope, without copying it.
func OpenEnvelope(data []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(data, []byte(ProtobufMagic))
	if !ok {
		return nil, errEnvelope
	}
	var raw []byte
	for len(rest) > 0 {
		number, wire, n := protowire.ConsumeTag(rest)
		if n < 0 || wire != protowire.BytesType {
			return nil, errEnvelope
		}
		value, m := protowire.ConsumeBytes(rest[n:])
		if m < 0 {
			return nil, errEnvelope
		}
		rest = rest[n+m:]
		if number == 2 {
			raw = value
		}
	}
	return raw, nil
}

// AppendFieldStart appends the tag and the size of a length-delimited protobuf field.
func AppendFieldStart(dst []byte, number protowire.Number, size int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(dst, number, protowire.BytesType), uint64(size))
}

// fieldSize returns the size of a field with a tag of one byte and a value of n bytes.
func fieldSize(n int) int { return 1 + protowire.SizeBytes(n) }

// AppendFrame appends one watch event (docs/wire.md 5.4), in protobuf or JSON. framed is set
// if frames share one stream, so that protobuf needs a length prefix.
func AppendFrame(dst []byte, protobuf bool, eventType string, object []byte, framed bool) []byte {
	if protobuf {
		objectSize := fieldSize(len(object))
		if framed {
			dst = binary.BigEndian.AppendUint32(dst, uint32(fieldSize(len(eventType))+fieldSize(objectSize)))
		}
		dst = append(AppendFieldStart(dst, 1, len(eventType)), eventType...)
		dst = AppendFieldStart(dst, 2, objectSize)
		return append(AppendFieldStart(dst, 1, len(object)), object...)
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, eventType...)
	dst = append(dst, `","object":`...)
	dst = append(dst, bytes.TrimRight(object, "\n")...)
	return append(dst, "}\n"...)
}
