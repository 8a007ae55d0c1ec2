package rest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"sigs.k8s.io/yaml"
)

// A body is read whole, whatever its sender says of its length, and what is set
// aside for it is bounded until it has come.
func TestReadAll(t *testing.T) {
	for _, size := range []int{0, 1, 511, eagerBody, eagerBody + 1, 5 * eagerBody} {
		sent := bytes.Repeat([]byte("x"), size)
		for _, said := range []int64{-1, 0, int64(size), int64(size) + 1, 1 << 40} {
			for _, r := range []io.Reader{bytes.NewReader(sent), iotest.DataErrReader(bytes.NewReader(sent))} {
				got, err := readAll(r, said, unbounded)
				if err != nil || !bytes.Equal(got, sent) {
					t.Errorf("%d bytes, said %d: got %d, %v", size, said, len(got), err)
				}
				if said > eagerBody && size == 0 && cap(got) > 2*eagerBody {
					t.Errorf("%d bytes are set aside", cap(got))
				}
			}
		}
	}
	sent := bytes.Repeat([]byte("x"), 3500)
	if n := testing.AllocsPerRun(10, func() { _, _ = readAll(onlyReader{bytes.NewReader(sent)}, int64(len(sent)), unbounded) }); n > 3 {
		t.Errorf("%v allocations", n)
	}
	broken := errors.New("broken")
	if _, err := readAll(iotest.ErrReader(broken), 5, unbounded); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

type onlyReader struct{ io.Reader }

// A complaint of YAML has so many lines at most, whatever the body.
func TestBoundComplaint(t *testing.T) {
	for n, ok := range map[int]bool{1: true, maxComplaints: true, maxComplaints + 1: false, 50_000: false} {
		err := yaml.UnmarshalStrict([]byte("{a: b,"+strings.Repeat("a: b,", n)+"}"), &map[string]any{})
		got := boundComplaint(err).Error()
		if (got == err.Error()) != ok || strings.Count(got, "\n") > maxComplaints+1 || !strings.Contains(got, "line 1: key \"a\" already set in map") {
			t.Errorf("%d: %.200s", n, got)
		}
		if more := fmt.Sprintf("and %d more", n-maxComplaints); !ok && !strings.Contains(got, more) {
			t.Errorf("%d: %q is missing", n, more)
		}
	}
	if other := errors.New(strings.Repeat("\n", 1000)); boundComplaint(other) != other {
		t.Error("another error was cut")
	}
}

// unbounded is memory without end for readAll.
func unbounded(int) error { return nil }
