package filter

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"portico/resource"
	"portico/resource/rest/body"
)

// A small body that is read for another server takes memory of its own size until its request is answered, also after
// the slot in flight is released. Without enough memory the answer is 429.
func TestMemoryOfSmallBodies(t *testing.T) {
	t.Parallel()
	const sent = "hello"
	var c *Chain
	called := 0
	c, err := New(Config{
		Authenticator: asJane{}, Logger: slog.New(slog.DiscardHandler), SentOn: func(*resource.Action) bool { return true },
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			called++
			ReleaseInFlight(r.Context())
			if n := c.limits.sent.InUse(); n != len(sent) {
				t.Errorf("%d bytes of memory are in use, want %d", n, len(sent))
			}
			if got, err := io.ReadAll(r.Body); err != nil || string(got) != sent {
				t.Errorf("got %q, %v", got, err)
			}
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	post := func() int {
		w := httptest.NewRecorder()
		c.ServeHTTP(w, httptest.NewRequest("POST", pathPods, strings.NewReader(sent)))
		if n := c.limits.sent.InUse(); n != 0 {
			t.Errorf("%d bytes of memory are in use in the end", n)
		}
		return w.Code
	}
	if code := post(); code != http.StatusOK || called != 1 {
		t.Errorf("got %d, the handler was called %d times", code, called)
	}
	c.limits.sent = body.NewBudget(len(sent) - 1)
	if code := post(); code != http.StatusTooManyRequests || called != 1 {
		t.Errorf("without memory: got %d, the handler was called %d times", code, called)
	}
}

// A long-running request waits for a small body no longer than others do. One of unknown length may be a stream that goes
// on as long as the request, and over HTTP/2 no longer. A HEAD request has no body.
func TestBodiesOfLongRunningRequests(t *testing.T) {
	t.Parallel()
	for _, major := range []int{1, 2} {
		for _, length := range []int64{-1, 0, 5, body.MaxSmall, body.MaxSmall + 1} {
			var sent io.Reader
			c := newChain(t, func(_ http.ResponseWriter, r *http.Request) { sent = r.Body })
			r := httptest.NewRequest("POST", pathPods+"/p/exec", http.NoBody)
			r.ProtoMajor, r.ContentLength, r.Body = major, length, io.NopCloser(strings.NewReader("hello"))
			c.ServeHTTP(httptest.NewRecorder(), r)
			small := length > 0 && length <= body.MaxSmall
			if b, ok := sent.(*clientBody); ok && !b.stream != small || !ok && small {
				t.Errorf("HTTP/%d, Content-Length %d: bounded: %t", major, length, !small)
			}
			_, err := sent.Read(make([]byte, 1))
			if want := small || major == 2 && length != 0; errors.Is(err, http.ErrBodyReadAfterClose) != want {
				t.Errorf("HTTP/%d, Content-Length %d: a read after the request: %v", major, length, err)
			}
		}
		for _, length := range []int64{-1, 5} {
			var got *http.Request
			c := newChain(t, func(_ http.ResponseWriter, r *http.Request) { got = r })
			r := httptest.NewRequest("HEAD", pathPods+"/p/proxy", strings.NewReader("hello"))
			r.ProtoMajor, r.ContentLength = major, length
			c.ServeHTTP(httptest.NewRecorder(), r)
			if got == nil || got.Body != http.NoBody || got.ContentLength != 0 {
				t.Errorf("HTTP/%d, Content-Length %d: the handler gets %+v", major, length, got)
			}
		}
	}
}
