package serve

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A shutdown ends all, also over a network; those that ended before are
// forgotten.
func TestLongRequestsEnd(t *testing.T) {
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", pathPods+"?watch=1", nil))
	}()
	for s.longRunning() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if n := s.longRunning(); n != 0 {
		t.Errorf("%d requests are counted", n)
	}
	watch := inBackground(s, pathPods+"?watch=1")
	for s.longRunning() == 0 {
		time.Sleep(time.Millisecond)
	}
	s.shutdown()
	<-watch
	if w := do(s, "GET", pathPods+"?watch=1"); w.Code != http.StatusTooManyRequests {
		t.Errorf("after the end: %d", w.Code)
	}
}

// A client that does not read informational responses does not delay the deadline.
func TestUnreadInformationalResponses(t *testing.T) {
	returned := make(chan struct{})
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(returned)
		w.Header().Set("Link", strings.Repeat("x", 1<<20))
		for r.Context().Err() == nil {
			w.WriteHeader(http.StatusEarlyHints)
		}
	})
	run(t, s)
	conn, err := net.Dial("unix", filepath.Clean(s.Addresses()[0].String()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s?timeout=100ms HTTP/1.1\r\nHost: portico\r\n\r\n", pathPods)
	select {
	case <-returned:
	case <-time.After(30 * time.Second):
		t.Fatal("the handler is held")
	}
}
