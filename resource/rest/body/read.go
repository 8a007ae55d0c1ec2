package body

import (
	"errors"
	"io"
	"slices"
)

// Eager is how many bytes are allocated for a body by its Content-Length; more are reserved
// and allocated as they arrive.
const Eager = 64 << 10

// ReadAll reads r to its end. length is its Content-Length in bytes, -1 if unknown. Beyond
// Eager it calls grow to reserve memory, in bytes, and returns its error.
func ReadAll(r io.Reader, length int64, grow func(size int) error) ([]byte, error) {
	var data []byte
	if length < 0 {
		data = make([]byte, 0, bytesOfUnknown)
	} else {
		// One byte more, so that the end is found without growing.
		data = make([]byte, 0, min(length, Eager)+1)
	}
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			return data, err
		case len(data) < cap(data):
			continue
		}
		more := len(data)
		if length >= Eager {
			more = max(bytesOfUnknown, min(more, int(length)+1-len(data)))
		}
		if len(data) >= Eager {
			if err := grow(more); err != nil {
				return data, err
			}
		}
		data = slices.Grow(data, more)
	}
}

// bytesOfUnknown is the first allocation for a body of unknown length, in bytes.
const bytesOfUnknown = 512
