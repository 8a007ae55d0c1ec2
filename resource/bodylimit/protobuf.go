package bodylimit

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// maxMessageDepth bounds the nesting of protobuf, with the envelope. Generated decoders
	// recurse, and the stack that a body can ask for would end the process. The built-in
	// kinds need less than a tenth.
	maxMessageDepth = 1000

	// fieldValues is the count of a field that is a string or a message, and emptyValues of
	// an empty one: two bytes may be an element of a list of structs, and five one with a
	// name. A body then has room for about MaxItems elements, and 22,000 members of a map.
	fieldValues, emptyValues = 3, 9
)

// ErrTooDeep reports protobuf that is nested too deeply; it is answered 400.
var ErrTooDeep = fmt.Errorf("the body is nested more than %d messages deep", maxMessageDepth)

// countProtobuf counts the values of protobuf. It does not know which fields are messages,
// so it reads every string as one as far as that is possible. Errors: ErrTooDeep,
// ErrTooMany.
func countProtobuf(data []byte) (values int, err error) {
	data = bytes.TrimPrefix(data, []byte("k8s\x00"))
	var ends []int // of the messages around pos, the outermost first
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
