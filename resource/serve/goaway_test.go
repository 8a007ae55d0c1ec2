package serve

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"portico/resource"
)

// A connection that is ended by chance takes no more requests; the watch on it
// goes on.
func TestGoaway(t *testing.T) {
	more := make(chan struct{})
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-more
		}
		_, _ = io.WriteString(w, "ended")
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.Handler().ServeHTTP(w, r) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	send := func(query string) (reused bool, res *http.Response) {
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
		r, _ := http.NewRequestWithContext(ctx, "GET", server.URL+pathPods+query, nil)
		res, err := server.Client().Do(r)
		if err != nil || res.ProtoMajor != 2 {
			t.Fatal(res, err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return reused, res
	}
	_, watch := send("?watch=1")
	if reused, _ := send(""); !reused {
		t.Fatal("without a chance, a connection is not used again")
	}
	s.cfg.GoawayChance = 1
	s.handler = s.chain()
	_, last := send("")
	_, _ = io.ReadAll(last.Body)
	s.cfg.GoawayChance = 0
	s.handler = s.chain()
	if reused, _ := send(""); reused {
		t.Error("a connection is used again that was to end")
	}
	close(more)
	if body, err := io.ReadAll(watch.Body); string(body) != "begunended" {
		t.Errorf("the watch: %q %v", body, err)
	}
}

func TestGoawayIsForHTTP2(t *testing.T) {
	s := newTestServer(t, ok)
	s.cfg.GoawayChance = 1
	s.handler = s.chain()
	if w := do(s, "GET", pathPods); w.Header().Get("Connection") != "" {
		t.Error("a connection of HTTP/1.1 is closed")
	}
	if _, err := New(Config{Listen: s.cfg.Listen, Handler: s.cfg.Handler, Authenticator: asJane{}, GoawayChance: 0.5}); err == nil {
		t.Error("every second request may end its connection")
	}
}

// A proxy that empties the header after an informational response, as net/http's
// does, does not keep a connection from ending; only the answer says that it does.
func TestGoawayAfterInformation(t *testing.T) {
	s := newTestServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</a>")
		w.WriteHeader(http.StatusEarlyHints)
		clear(w.Header())
		w.WriteHeader(http.StatusOK)
	})
	for name, end := range map[string]func(){
		"by chance":  func() { s.cfg.GoawayChance, s.cfg.Authenticator = 1, asJane{} },
		"a stranger": func() { s.cfg.GoawayChance, s.cfg.Authenticator = 0, asStranger{} },
	} {
		end()
		s.handler = s.chain()
		for _, query := range []string{"", "?watch=1"} {
			r := httptest.NewRequest("GET", pathPods+query, nil)
			r.ProtoMajor = 2
			w := &headers{header: http.Header{}}
			s.Handler().ServeHTTP(w, r)
			if len(w.sent) != 2 || w.sent[0].Get("Link") == "" || w.sent[0].Get("Connection") != "" || w.sent[1].Get("Connection") != "close" {
				t.Errorf("%s%s: got %v", name, query, w.sent)
			}
		}
	}
}

// asStranger lets everybody in, as nobody.
type asStranger struct{}

func (asStranger) Authenticate(*http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: resource.Anonymous}, true, nil
}

// headers takes a response, and keeps the header of each part of it.
type headers struct {
	header http.Header
	sent   []http.Header
}

func (h *headers) Header() http.Header         { return h.header }
func (h *headers) WriteHeader(int)             { h.sent = append(h.sent, h.header.Clone()) }
func (h *headers) Write(b []byte) (int, error) { return len(b), nil }

// Long-running requests are ended one after the other, in bounded time.
func TestLongRequestsEndSpread(t *testing.T) {
	for _, c := range []struct {
		requests           int
		within             time.Duration
		early, late, limit time.Duration // when a quarter and all have ended
	}{
		{400, 5 * time.Second, 300 * time.Millisecond, 1900 * time.Millisecond, 2100 * time.Millisecond}, // 200 a second
		{10000, 5 * time.Second, time.Second, 4 * time.Second, 5100 * time.Millisecond},
		{10000, -1, 0, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var g longGroup
			began, ended := time.Now(), []time.Duration(nil)
			for range c.requests {
				end := context.CancelCauseFunc(func(error) { ended = append(ended, time.Since(began)) })
				g.enter(&end)
			}
			g.end(c.within)
			if len(ended) != c.requests {
				t.Fatalf("%d of %d ended", len(ended), c.requests)
			}
			if quarter, last := ended[c.requests/4], ended[c.requests-1]; quarter < c.early || last < c.late || last > c.limit {
				t.Errorf("%d requests: a quarter after %v, all after %v", c.requests, quarter, last)
			}
		})
	}
}

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
	for s.life.long.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if n := len(s.life.long.ends); n != 0 || s.life.long.count() != 0 {
		t.Errorf("%d requests are remembered", n)
	}
	watch := inBackground(s, pathPods+"?watch=1")
	for s.life.long.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	s.shutdown()
	<-watch
	if w := do(s, "GET", pathPods+"?watch=1"); w.Code != http.StatusTooManyRequests {
		t.Errorf("after the end: %d", w.Code)
	}
}

// A client that does not read informational responses holds nobody beyond the
// deadline.
func TestInformationNobodyReads(t *testing.T) {
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

// Who comes while a shutdown ends the others is refused: nobody would ever end it.
func TestLongRequestsEnterLate(t *testing.T) {
	var g longGroup
	g.ending.Lock() // as a shutdown that looks whom there is to end
	in := make(chan bool)
	go func() {
		end := context.CancelCauseFunc(func(error) {})
		in <- g.enter(&end)
	}()
	for began := time.Now(); g.count() == 0 && time.Since(began) < 50*time.Millisecond; {
		time.Sleep(time.Millisecond)
	}
	g.close()
	g.ending.Unlock()
	if <-in {
		t.Error("it was let in")
	}
}
