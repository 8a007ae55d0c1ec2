package rest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxMessageDepth is how deep protobuf bodies may be nested, envelope included.
// Generated decoders have no bound of their own: they go down with every message
// in a message, and a body can hold more of those than a stack has room for,
// which ends the process. The kinds there are need less than a tenth of it.
const maxMessageDepth = 1000

// checkMessageDepth is the 400 for protobuf that is nested too deep. It does not
// know which fields are messages, so it takes every string for one, as far as
// the string goes along with it. It goes over each byte once.
func checkMessageDepth(data []byte) error {
	var ends []int // of the messages that pos is in, from the outside in
	for pos, end := 0, len(data); ; {
		if pos == end {
			if len(ends) == 0 {
				return nil
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
				return apierrors.NewBadRequest(fmt.Sprintf("the body is nested more than %d messages deep", maxMessageDepth))
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
