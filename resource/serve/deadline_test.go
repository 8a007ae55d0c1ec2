package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/serve/filter"
)

const timedOut = "Timeout: request did not complete within the allotted timeout"

// bothProtocols runs a test with a client of HTTP/1.1 and one of HTTP/2, each with a server
// of its own.
func bothProtocols(t *testing.T, test func(t *testing.T, h2 bool)) {
	t.Helper()
	for name, h2 := range map[string]bool{"h1": false, "h2": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h2)
		})
	}
}

// A request has the deadline of its parameter timeout, at most RequestTimeout and earlier by
// Ahead, which is at most a tenth. Long-running requests have none.
func TestTimeoutParameter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var left time.Duration
		server := func(ahead time.Duration) *testServer {
			return newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
				left = 0
				if at, ok := r.Context().Deadline(); ok {
					left = time.Until(at)
				}
			}, func(c *testConfig) {
				c.RequestTimeout, c.Ahead = time.Hour, ahead
				c.LongRunning = func(r *http.Request, a *resource.Action) bool {
					return r.URL.Query().Has("lasts") && a.Resource == "pods"
				}
			})
		}
		exact, early := server(0), server(time.Second)
		for target, want := range map[string]time.Duration{
			pathPods:                               time.Hour,
			pathPods + "?timeout=30m":              30 * time.Minute,
			pathPods + "?timeout=2h":               time.Hour,
			pathPods + "?timeout=0":                time.Hour,
			pathPods + "?timeout=-1s":              time.Hour,
			pathPods + "?timeoutSeconds=7":         time.Hour,
			pathPods + "?watch=1&timeout=1m":       0,
			pathPods + "?watch=1&timeout=x":        0,
			pathPods + "/x/exec":                   0,
			pathPods + "?lasts&timeout=1m":         0,
			"/api/v1/nodes?lasts":                  time.Hour,
			"/api/v1/proxy/namespaces/ns/pods/x":   0,
			"/debug/pprof/profile?timeout=nothing": 0,
		} {
			if w := do(exact, "GET", target); w.Code != 200 || left != want {
				t.Errorf("%s: %d, %v left, want %v", target, w.Code, left, want)
			}
		}
		for timeout, want := range map[string]time.Duration{
			"1m": 59 * time.Second, "30s": 29 * time.Second, "10s": 9 * time.Second, "1s": 900 * time.Millisecond, "20ms": 18 * time.Millisecond,
		} {
			if do(early, "GET", pathPods+"?timeout="+timeout); left != want {
				t.Errorf("a second ahead of %s: %v left, want %v", timeout, left, want)
			}
		}
		w := do(exact, "GET", pathPods+"?timeout=soon")
		wantStatus(t, w.Body, 400, metav1.StatusReasonBadRequest, "invalid timeout specified in the request URL")
	})
}

// After its deadline a request is answered 504, whatever its handler does then, or its
// response is cut off if it has begun. A client that neither sends nor reads does not keep
// the handler.
func TestDeadline(t *testing.T) {
	t.Parallel()
	late := func(w http.ResponseWriter) error {
		w.Header().Set("X-Late", "1")
		w.WriteHeader(500)
		_, err := io.WriteString(w, "late")
		return err
	}
	for name, tc := range map[string]struct {
		serve   func(w http.ResponseWriter, r *http.Request) error // returns the error of reading or writing too late
		sending bool                                               // the client sends a body without an end
		begun   string                                             // of the response
	}{
		"the handler writes too late": {serve: func(w http.ResponseWriter, r *http.Request) error { <-r.Context().Done(); return late(w) }},
		"the handler aborts": {serve: func(w http.ResponseWriter, r *http.Request) error {
			<-r.Context().Done()
			if late(w) == nil {
				return nil
			}
			panic(http.ErrAbortHandler)
		}},
		"the response has begun": {begun: "begun", serve: func(w http.ResponseWriter, r *http.Request) error {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			_ = late(w) // it may succeed until the timer has run
			return http.ErrHandlerTimeout
		}},
		"the client does not send": {sending: true, serve: func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.ReadAll(r.Body)
			return errors.Join(err, late(w))
		}},
		"the client does not read": {begun: "\x00", serve: func(w http.ResponseWriter, r *http.Request) error {
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return err
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothProtocols(t, func(t *testing.T, h2 bool) {
				returned := make(chan struct{}, 1)
				s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
					defer func() { returned <- struct{}{} }()
					if err := tc.serve(w, r); err == nil {
						t.Error("the handler reads or writes after the deadline")
					}
				})
				s.start(t)
				c := s.client(t, h2)
				for range 2 { // after a 504 the connection remains usable
					var body io.Reader
					if tc.sending {
						never, w := io.Pipe()
						defer w.Close()
						go func() { _, _ = w.Write([]byte("part")) }()
						body = never
					}
					timeout := "40ms"
					if tc.begun != "" {
						timeout = "250ms" // on a busy machine the handler begins late
					}
					response, err := c.Post("http://portico/x?timeout="+timeout, "text/plain", body)
					if err != nil {
						t.Fatal(err)
					}
					defer response.Body.Close()
					<-returned
					if tc.begun != "" {
						if body, err := io.ReadAll(response.Body); err == nil || !strings.HasPrefix(string(body), tc.begun) {
							t.Errorf("got %.10q, %v; want a broken body that begins with %q", body, err, tc.begun)
						}
						continue
					}
					wantStatus(t, response.Body, 504, metav1.StatusReasonTimeout, timedOut)
					if response.StatusCode != 504 || response.Header.Get("X-Late") != "" || response.Header.Get("Audit-Id") == "" {
						t.Errorf("got %d %v", response.StatusCode, response.Header)
					}
				}
			})
		})
	}
}

// A handler that ignores its deadline does not delay the 504, and cannot write afterwards.
func TestHandlerIgnoresDeadline(t *testing.T) {
	t.Parallel()
	bothProtocols(t, func(t *testing.T, h2 bool) {
		release := make(chan struct{})
		defer close(release)
		s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
			<-release
			if _, err := w.Write(make([]byte, 100<<10)); err == nil {
				t.Error("the handler may still write")
			}
		})
		s.start(t)
		response, err := s.client(t, h2).Get("http://portico/x?timeout=20ms")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if response.ProtoMajor == 1 && err != nil { // HTTP/2 resets the stream
			t.Errorf("the response is not whole: %v", err)
		}
		wantStatus(t, strings.NewReader(string(body)), 504, metav1.StatusReasonTimeout, timedOut)
	})
}

// Behind a server with the same deadline, a server with Ahead answers 504 in time for the
// one before it to send that response whole.
func TestInnerAnswerIsWhole(t *testing.T) {
	t.Parallel()
	inner := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		func(c *testConfig) { c.Ahead = time.Second })
	inner.start(t)
	behind := inner.client(t, false)
	outer := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		res, err := behind.Do(clientRequest(r.Context(), "http://portico"+r.URL.RequestURI()))
		if err != nil {
			return
		}
		defer res.Body.Close()
		w.Header().Set("X-Inner", "1")
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	})
	outer.start(t)
	bothProtocols(t, func(t *testing.T, h2 bool) {
		// A tenth of a short timeout may be too little on a busy machine.
		for timeout := 500 * time.Millisecond; timeout <= 16*time.Second; timeout *= 2 {
			response, body := get(t, outer.client(t, h2), "http://portico"+pathPods+"?timeout="+timeout.String())
			if response.Header.Get("X-Inner") != "" {
				wantStatus(t, strings.NewReader(body), 504, metav1.StatusReasonTimeout, timedOut)
				return
			}
		}
		t.Error("the outer server answered")
	})
}

// A handler may use its response, its request's header and warnings while the deadline
// passes, and no response has a header of another. For the race detector.
func TestDeadlineRaces(t *testing.T) {
	t.Parallel()
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Of-"+r.URL.Query().Get("id"), "1")
		for i := range 50 {
			w.Header().Set("X-Count", strings.Repeat("x", i))
			filter.AddWarning(r.Context(), strings.Repeat("w", i))
			r.Header.Del("Accept")
		}
		w.Header().Set(http.TrailerPrefix+"X-End", "1")
		_, _ = io.WriteString(w, "done")
		_ = http.NewResponseController(w).Flush()
	})
	s.start(t)
	client := s.client(t, true)
	check := func(ctx context.Context, id string, timeout time.Duration) {
		response, err := client.Do(clientRequest(ctx, fmt.Sprintf("http://portico/x?id=%s&timeout=%s", id, timeout)))
		if err != nil {
			return // the client has gone
		}
		defer response.Body.Close()
		for name := range response.Header {
			if of, found := strings.CutPrefix(name, "X-Of-"); found && (of != id || response.StatusCode != 200) {
				t.Errorf("%d for %s has the header of %s", response.StatusCode, id, of)
			}
		}
		body, err := io.ReadAll(response.Body)
		if response.StatusCode == 200 && err == nil && (string(body) != "done" || response.Trailer.Get("X-End") != "1") {
			t.Errorf("got %q, trailer %v", body, response.Trailer)
		}
		if response.StatusCode != 200 && response.StatusCode != 504 {
			t.Errorf("got %d", response.StatusCode)
		}
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 25 {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if j%8 == 7 { // a client that goes
					time.AfterFunc(time.Duration(i*j)*time.Microsecond, cancel)
				}
				check(ctx, fmt.Sprintf("%d-%d", i, j), time.Duration(i*25+j)*3*time.Microsecond+time.Microsecond)
				cancel()
			}
		})
	}
	all.Wait()
}
