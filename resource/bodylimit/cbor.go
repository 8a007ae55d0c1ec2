package bodylimit

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// maxJSON bounds the JSON that CBOR is converted to, in bytes: the limit of a body.
const maxJSON = 3 << 20

// errLongAsJSON reports CBOR that is much shorter than its JSON; it is answered 413.
var errLongAsJSON = fmt.Errorf("the body has more than %d bytes as JSON", maxJSON)

// Major types of CBOR (RFC 8949, 3.1).
const (
	cborUnsigned = iota
	cborNegative
	cborBytes
	cborText
	cborArray
	cborMap
	cborTag
)

// countCBOR counts the values of CBOR and the elements of its arrays, and the bytes that it
// has as JSON. It reads head after head, whatever their nesting, up to one that is malformed.
func countCBOR(data []byte) (values, items, json int) {
	unknown := false             // an array does not say how many elements it has
	encoded, all := false, false // the next bytes, or all further ones, become base64 or hexadecimal
	for len(data) > 0 {
		major := int(data[0] >> 5)
		indefinite := data[0]&31 == 31
		n, size := argument(data)
		// Every element takes a byte, every member two.
		if size == 0 || major >= cborBytes && major <= cborArray && n > uint64(len(data)-size) || major == cborMap && n > uint64(len(data)-size)/2 {
			break
		}
		data = data[size:]
		values++
		json += lengthAsJSON(major, size)
		switch major {
		case cborBytes, cborText:
			text := escapedLength(data[:n])
			if encoded || all {
				text = max(text, 2*int(n))
			}
			json += text
			data = data[n:]
		case cborArray:
			items += int(n)
			unknown = unknown || indefinite
		case cborMap:
			values -= int(n) // a member and its name are one value
		case cborTag:
			encoded = encoded || n >= 21 && n <= 23
			continue
		}
		all = all || encoded && major >= cborArray
		encoded = false
	}
	if unknown {
		items = values
	}
	return values, items, json
}

// argument returns the argument of the first head, 0 if it has none, and the size of the
// head; 0: it is malformed.
func argument(data []byte) (n uint64, size int) {
	info := data[0] & 31
	switch {
	case info < 24:
		return uint64(info), 1
	case info == 31:
		return 0, 1
	case info > 27:
		return 0, 0
	}
	if size = 1 << (info - 24); len(data) <= size {
		return 0, 0
	}
	var padded [8]byte
	copy(padded[8-size:], data[1:1+size])
	return binary.BigEndian.Uint64(padded[:]), 1 + size
}

// lengthAsJSON returns an upper bound of the bytes that a value takes as JSON with what
// separates it from the next one, without its text, for the size of its head.
func lengthAsJSON(major, size int) int {
	switch {
	case major == cborTag:
		return 40 // a time in seconds becomes text
	case major >= cborBytes && major <= cborMap:
		return 3
	case size == 1:
		return 6
	}
	return 26 // the longest number
}

// escapedLength returns an upper bound of the length of text in JSON, where bytes that are not
// UTF-8 are replaced.
func escapedLength(text []byte) int {
	if !utf8.Valid(text) {
		return 6 * len(text)
	}
	n := 0
	for _, b := range text {
		switch {
		case b == '"', b == '\\', b == '\n', b == '\t', b == '\r', b == '\b', b == '\f':
			n += 2
		case b < ' ':
			n += 6
		case b == 0xe2: // the first byte of two line separators
			n += 4
		default:
			n++
		}
	}
	return n
}
