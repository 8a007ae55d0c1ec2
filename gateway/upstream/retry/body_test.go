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

// A small body and one in memory can be sent any number of times, another until some of it is
// read, and one of a client that expects to be asked for it is not read beforehand.
func TestBodyRepeats(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size   int
		expect string
		reads  bool // the first attempt reads from it
		again  bool // it can be sent again
		memory bool
	}{
		"none":                {0, "", false, true, false},
		"small":               {10, "", true, true, false},
		"large, unread":       {MaxKeptBody + 1, "", false, true, false},
		"large, read":         {MaxKeptBody + 1, "", true, false, false},
		"large, in memory":    {MaxKeptBody + 1, "", true, true, true},
		"with Expect, unread": {10, "100-continue", false, true, false},
		"with Expect, read":   {10, "100-continue", true, false, false},
	} {
		text := strings.Repeat("x", c.size)
		req, _ := http.NewRequest("POST", "http://server/", strings.NewReader(text))
		if !c.memory {
			req.GetBody = nil
		}
		if c.expect != "" {
			req.Header.Set("Expect", c.expect)
		}
		b := NewBody(req)
		if err := b.Keep(); err != nil {
			t.Fatal(name, err)
		}
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
	req.Body, req.ContentLength = io.NopCloser(failing{}), 10
	b = NewBody(req)
	if err := b.Keep(); !errors.As(err, &body) {
		t.Errorf("a small one: %v", err)
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
