package lastgood

import (
	"bytes"
	"encoding/binary"
	"time"
)

// When a document was made is in its gzip header, as the time of the file that was
// compressed: four bytes, in seconds. Earlier versions of the gateway leave them 0
// and do not look at them, so that either reads what the other wrote.
const (
	madeFrom = 1 + 4 // the format's byte, and what the header has before it
	madeTo   = madeFrom + 4
)

// hasMade reports whether a document has room for when it was made.
func hasMade(data []byte) bool { return len(data) >= madeTo && data[0] == documentFormat }

// madeAt returns when a document was made; 0 is not known, which is before all that
// is.
func madeAt(data []byte) uint32 {
	if !hasMade(data) {
		return 0
	}
	return binary.LittleEndian.Uint32(data[madeFrom:])
}

// setMade says in a document that it was made at that time.
func setMade(data []byte, at uint32) {
	if hasMade(data) {
		binary.LittleEndian.PutUint32(data[madeFrom:], at)
	}
}

// madeAfter is when a document is made that replaces another one: now, and later
// than that in any case. Clocks of gateways differ, and two may be made in a second.
func madeAfter(old []byte) uint32 {
	return max(uint32(time.Now().Unix()), madeAt(old)+1)
}

// same reports whether two documents have the same content, whenever they were made.
func same(a, b []byte) bool {
	if !hasMade(a) || !hasMade(b) {
		return bytes.Equal(a, b)
	}
	return bytes.Equal(a[:madeFrom], b[:madeFrom]) && bytes.Equal(a[madeTo:], b[madeTo:])
}
