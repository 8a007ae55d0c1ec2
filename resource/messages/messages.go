// Package messages bounds what a protobuf body that came from a client takes once
// it is decoded.
//
// Generated decoders have no bounds of their own. They go down with every message
// in a message, and a body can hold more of those than a stack has room for, which
// ends the process; and two bytes are a message of some hundred bytes of memory,
// so that three megabytes take some gigabytes.
//
// Runs in: gateway, core, crd.
package messages

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// MaxDepth is how deep bodies may be nested, envelope included. The kinds there
	// are need less than a tenth of it.
	MaxDepth = 1000
	// MaxFields is how many strings and messages a body may have: more than fit
	// into what etcd stores of an object, if each has ten bytes.
	MaxFields = 150_000
)

// What Check returns.
var (
	ErrTooDeep = fmt.Errorf("the body is nested more than %d messages deep", MaxDepth)
	ErrTooMany = fmt.Errorf("the body has more than %d strings and messages", MaxFields)
)

// Check returns ErrTooDeep or ErrTooMany for a message that is past these bounds.
// It does not know which fields are messages, so it takes every string for one, as
// far as the string goes along with it. It goes over each byte once.
func Check(data []byte) error {
	fields := 0
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
			if len(ends) == MaxDepth {
				return ErrTooDeep
			}
			if fields++; fields > MaxFields {
				return ErrTooMany
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
