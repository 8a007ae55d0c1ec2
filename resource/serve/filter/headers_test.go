package filter

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"

	"portico/resource"
)

const pathPods = "/api/v1/namespaces/ns/pods"

func ok(http.ResponseWriter, *http.Request) {}

// asJane authenticates every request as jane.
type asJane struct{}

func (asJane) Authenticate(*http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: "jane"}, true, nil
}

func newChain(t *testing.T, h http.HandlerFunc) *Chain {
	t.Helper()
	c, err := New(Config{Handler: h, Authenticator: asJane{}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A connection that is ended by chance takes no more requests; the watch on it
// goes on.
func TestGoaway(t *testing.T) {
	more := make(chan struct{})
	s := newChain(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-more
		}
		_, _ = io.WriteString(w, "ended")
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.ServeHTTP(w, r) }))
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
	_, last := send("")
	_, _ = io.ReadAll(last.Body)
	s.cfg.GoawayChance = 0
	if reused, _ := send(""); reused {
		t.Error("a connection is used again that was to end")
	}
	close(more)
	if body, err := io.ReadAll(watch.Body); string(body) != "begunended" {
		t.Errorf("the watch: %q %v", body, err)
	}
}

func TestGoawayIsForHTTP2(t *testing.T) {
	s := newChain(t, ok)
	s.cfg.GoawayChance = 1
	w := httptest.NewRecorder()
	if s.ServeHTTP(w, httptest.NewRequest("GET", pathPods, nil)); w.Header().Get("Connection") != "" {
		t.Error("a connection of HTTP/1.1 is closed")
	}
	if _, err := New(Config{Handler: s.cfg.Handler, Authenticator: asJane{}, GoawayChance: 0.5}); err == nil {
		t.Error("every second request may end its connection")
	}
}
