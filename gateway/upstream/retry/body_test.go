package retry

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the client went away") }

// A body in memory can be sent any number of times, another until some of it is read.
func TestBodyRepeats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size   int
		reads  bool // the first attempt reads from it
		again  bool // it can be sent again
		memory bool
	}{
		"none":      {0, false, true, false},
		"unread":    {10, false, true, false},
		"read":      {10, true, false, false},
		"in memory": {10, true, true, true},
	} {
		text := strings.Repeat("x", c.size)
		req, _ := http.NewRequest("POST", "http://server/", strings.NewReader(text))
		if !c.memory {
			req.GetBody = nil
		}
		b := NewBody(req)
		out, ends := *req, 0
		b.Open(&out, func() { ends++ })
		if c.reads {
			if got, err := io.ReadAll(out.Body); string(got) != text || err != nil || ends != 1 {
				t.Errorf("%s: %d bytes, %v, %d ends", name, len(got), err, ends)
			}
		}
		if b.Repeatable() != c.again {
			t.Errorf("%s: repeatable is %v", name, !c.again)
		}
		if !c.again || c.size == 0 {
			continue
		}
		first := out.Body
		b.Open(&out, nil)
		if got, err := io.ReadAll(out.Body); string(got) != text || err != nil {
			t.Errorf("%s: the second time: %d bytes, %v", name, len(got), err)
		}
		if n, err := first.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("%s: the first attempt reads on", name)
		}
	}
}

// The error of a client that stops sending its body is a BodyError; a body that is
// closed while it is read is not the client's fault.
func TestBodyError(t *testing.T) {
	t.Parallel()
	req, _ := http.NewRequest("POST", "http://server/", failing{})
	var body *BodyError
	b := NewBody(req)
	s := b.Open(req, nil)
	_, _ = io.Copy(io.Discard, s)
	if s.Close(); !errors.As(s.Err(), &body) {
		t.Errorf("a client that went away: %v", s.Err())
	}
	r, w := io.Pipe()
	s = &Stream{src: r}
	ended := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, s)
		ended <- err
	}()
	fmt.Fprint(w, "x") // it is being read
	s.Close()
	if err := <-ended; err == nil || s.Err() != nil {
		t.Errorf("closed while it is read: %v, the client's error is %v", err, s.Err())
	}
}
