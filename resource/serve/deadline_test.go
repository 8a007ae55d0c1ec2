package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/serve/filter"
)

const timedOut = "Timeout: request did not complete within the allotted timeout"

// bothProtocols runs a test over HTTP/1.1 and HTTP/2, on a real connection.
func bothProtocols(t *testing.T, h http.HandlerFunc, test func(t *testing.T, c *http.Client)) {
	t.Helper()
	s := newTestServer(t, h)
	run(t, s)
	for name, h2 := range map[string]bool{"h1": false, "h2": true} {
		t.Run(name, func(t *testing.T) {
			test(t, socketClient(t, strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix), h2))
		})
	}
}

func TestTimeoutParameter(t *testing.T) {
	var left time.Duration
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
		left = 0
		if at, ok := r.Context().Deadline(); ok {
			left = time.Until(at)
		}
	}, func(c *testConfig) {
		c.RequestTimeout = time.Hour
		c.LongRunning = func(r *http.Request, a *resource.Action) bool {
			return r.URL.Query().Has("lasts") && a.Resource == "pods"
		}
	})
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
		if w := do(s, "GET", target); w.Code != 200 || left > want || left < want-time.Minute {
			t.Errorf("%s: %d, %v left, want %v", target, w.Code, left, want)
		}
	}
	w := do(s, "GET", pathPods+"?timeout=soon")
	wantStatus(t, w.Body, 400, metav1.StatusReasonBadRequest, "invalid timeout specified in the request URL")
}

func TestWritesWithoutChangeKeepTheRevision(t *testing.T) {
	bothProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		// A handler that says something in its defence must not win.
		w.Header().Set("X-Late", "1")
		http.Error(w, "context deadline exceeded", 500)
	}, func(t *testing.T, c *http.Client) {
		for range 3 { // the connection remains good
			response, body := get(t, c, "http://portico/x?timeout=20ms")
			wantStatus(t, strings.NewReader(body), 504, metav1.StatusReasonTimeout, timedOut)
			if response.StatusCode != 504 || response.Header.Get("X-Late") != "" || response.Header.Get("Audit-Id") == "" {
				t.Errorf("got %d %v", response.StatusCode, response.Header)
			}
		}
	})
}

func TestAlreadyWritten(t *testing.T) {
	bothProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begun")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, func(t *testing.T, c *http.Client) {
		response, err := c.Get("http://portico/x?timeout=20ms")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err == nil || string(body) != "begun" {
			t.Errorf("got %q, %v; want a broken body", body, err)
		}
	})
}

// A client that does not send its body must not hold the handler beyond the
// deadline.
func TestBodyDoesNotArrive(t *testing.T) {
	read := make(chan error, 1)
	bothProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		read <- err
		http.Error(w, "late", 400)
	}, func(t *testing.T, c *http.Client) {
		body, never := io.Pipe()
		defer never.Close()
		go func() { _, _ = never.Write([]byte("part")) }()
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://portico/x?timeout=20ms", body)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		wantStatus(t, response.Body, 504, metav1.StatusReasonTimeout, timedOut)
		if err := <-read; err == nil {
			t.Error("the handler read a whole body")
		}
	})
}

// A handler that heeds nothing keeps the client waiting for no longer than a
// grace.
func TestHandlerDoesNotHeed(t *testing.T) {
	release := make(chan struct{})
	bothProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		for range 100 {
			if _, err := w.Write(make([]byte, 1<<10)); err == nil {
				t.Error("the handler may still write")
			}
		}
	}, func(t *testing.T, c *http.Client) {
		defer func() { release <- struct{}{} }()
		response, err := c.Get("http://portico/x?timeout=20ms")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if response.ProtoMajor == 1 && err != nil {
			t.Errorf("the answer is not whole: %v", err)
		}
		wantStatus(t, strings.NewReader(string(body)), 504, metav1.StatusReasonTimeout, timedOut)
	})
}

// What a handler makes of a write that comes too late does not take back the
// answer: a proxy aborts when it cannot pass on what it got a moment too late.
func TestHandlerAbortsTooLate(t *testing.T) {
	bothProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		if _, err := io.WriteString(w, "late"); err == nil {
			t.Error("the handler may still write")
		}
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, c *http.Client) {
		response, err := c.Get("http://portico/x?timeout=20ms")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Errorf("the answer is not whole: %v", err)
		}
		wantStatus(t, strings.NewReader(string(body)), 504, metav1.StatusReasonTimeout, timedOut)
	})
}

// A client that does not read must not hold the handler either.
func TestClientDoesNotRead(t *testing.T) {
	wrote := make(chan error, 1)
	bothProtocols(t, func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				wrote <- err
				return
			}
		}
	}, func(t *testing.T, c *http.Client) {
		response, err := c.Get("http://portico/x?timeout=50ms")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		<-wrote
	})
}

// Handlers that touch everything while their time ends: for the race detector.
// Writers are used again, and no answer has anything of another one.
func TestDeadlineRaces(t *testing.T) {
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Of-"+r.URL.Query().Get("id"), "1")
		for i := range 50 {
			w.Header().Set("X-Count", strings.Repeat("x", i))
			filter.AddWarning(r.Context(), strings.Repeat("w", i))
			r.Header.Del("Accept")
			if i%10 == 9 {
				w.WriteHeader(http.StatusEarlyHints)
			}
		}
		w.Header().Set(http.TrailerPrefix+"X-End", "1")
		_, _ = io.WriteString(w, "done")
		_ = http.NewResponseController(w).Flush()
	})
	run(t, s)
	client := socketClient(t, strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix), true)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 25 {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				if j%8 == 7 { // a client that goes
					time.AfterFunc(time.Duration(i*j)*time.Microsecond, cancel)
				}
				id, timeout := fmt.Sprintf("%d-%d", i, j), time.Duration(i*25+j)*3*time.Microsecond+time.Microsecond
				r, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://portico/x?id=%s&timeout=%s", id, timeout), nil)
				response, err := client.Do(r)
				if err == nil {
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
					_ = response.Body.Close()
				}
				cancel()
			}
		})
	}
	all.Wait()
}
