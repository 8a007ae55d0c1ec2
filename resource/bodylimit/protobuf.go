package bodylimit

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// maxMessageDepth is how deep protobuf may be nested, envelope included:
	// generated decoders recurse into every message in a message, and a body can
	// hold more of those than a stack has room for, which ends the process. The
	// built-in kinds need less than a tenth of it.
	maxMessageDepth = 1000

	// fieldValues is how many values a field counts as that is a string or a
	// message, and emptyValues one that is empty: two bytes may be an element of a
	// list of structs, and five one with a name. So about as many elements fit into
	// a body as MaxItems, and 22,000 members of a map.
	fieldValues, emptyValues = 3, 9
)

// ErrTooDeep is for protobuf that is nested too deep, which is a 400.
var ErrTooDeep = fmt.Errorf("the body is nested more than %d messages deep", maxMessageDepth)

// countProtobuf counts the values of protobuf. Which fields are messages is unknown
// here: every string is taken for one as far as it can be read as one. Errors:
// ErrTooDeep, ErrTooMany.
func countProtobuf(data []byte) (values int, err error) {
	data = bytes.TrimPrefix(data, []byte("k8s\x00"))
	var ends []int // of the messages that pos is in, from the outside in
	for pos, end := 0, len(data); ; {
		if pos == end {
			if len(ends) == 0 {
				return values, nil
			}
			end, ends = ends[len(ends)-1], ends[:len(ends)-1]
			continue
		}
		_, wire, n := protowire.ConsumeTag(data[pos:end])
		if n < 0 {
			pos = end // not a message
			continue
		}
		pos += n
		switch wire {
		case protowire.StartGroupType, protowire.EndGroupType:
			continue
		case protowire.BytesType:
			size, n := protowire.ConsumeVarint(data[pos:end])
			if n < 0 || size > uint64(end-pos-n) {
				pos = end
				continue
			}
			if len(ends) == maxMessageDepth {
				return values, ErrTooDeep
			}
			if values += fieldValues; size == 0 {
				values += emptyValues - fieldValues
			}
			if values > MaxValues {
				return values, ErrTooMany
			}
			pos += n
			ends = append(ends, end)
			end = pos + int(size)
		default:
			if n = protowire.ConsumeFieldValue(1, wire, data[pos:end]); n < 0 {
				pos = end
				continue
			}
			pos += n
		}
	}
}
