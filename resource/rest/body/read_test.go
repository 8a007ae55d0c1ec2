package body

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// A body is read to its end with any Content-Length, and allocations before it arrives are
// bounded.
func TestReadAll(t *testing.T) {
	for _, size := range []int{0, 1, 511, Eager, Eager + 1, 5 * Eager} {
		sent := bytes.Repeat([]byte("x"), size)
		for _, said := range []int64{-1, 0, int64(size), int64(size) + 1, 1 << 40} {
			for _, r := range []io.Reader{bytes.NewReader(sent), iotest.DataErrReader(bytes.NewReader(sent))} {
				got, err := ReadAll(r, said, unbounded)
				if err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%d bytes, said %d: got %d, %v", size, said, len(got), err)
				}
				if said > Eager && size == 0 && cap(got) > 2*Eager {
					t.Errorf("%d bytes are set aside", cap(got))
				}
			}
		}
	}
	sent := bytes.Repeat([]byte("x"), 3500)
	if n := testing.AllocsPerRun(10, func() { _, _ = ReadAll(onlyReader{bytes.NewReader(sent)}, int64(len(sent)), unbounded) }); n > 3 {
		t.Errorf("%v allocations", n)
	}
	broken := errors.New("broken")
	if _, err := ReadAll(iotest.ErrReader(broken), 5, unbounded); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

type onlyReader struct{ io.Reader }

// unbounded grants ReadAll any memory.
func unbounded(int) error { return nil }
