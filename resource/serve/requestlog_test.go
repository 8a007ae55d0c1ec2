package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"portico/resource/serve/filter"
)

// ends is a filter.RequestLog that keeps its records.
type ends struct {
	mu  sync.Mutex
	all []filter.RequestEnd
}

func (e *ends) Add(end *filter.RequestEnd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, *end)
}

func (*ends) Run(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// attachment sets X-Last in the header of the response.
type attachment string

func (a attachment) OnHeader(h http.Header, code int) { h["X-Last"] = []string{string(a)} }

func (a attachment) Value(key any) any {
	if key == "word" {
		return string(a)
	}
	return nil
}

// A request is a 499 if the client closes the connection before there is a response: in the
// log, metrics, audit and traces, and no failure of the server.
func TestClientGone(t *testing.T) {
	t.Parallel()
	for name, panics := range map[string]bool{"the handler aborts": true, "the handler returns": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &ends{}
			tracer, collected := tracing(t)
			change, events := auditing(t, completed)
			s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
				filter.CountAs(r.Context(), "aggregator")
				if panics {
					panic(http.ErrAbortHandler)
				}
			}, change, func(c *testConfig) { c.AccessLog, c.Tracer = log, tracer })
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			func() {
				defer func() {
					if cause := recover(); (cause == http.ErrAbortHandler) != panics {
						t.Errorf("panicked with %v", cause)
					}
				}()
				s.chain.ServeHTTP(httptest.NewRecorder(), request(ctx, "GET", pathPods))
			}()
			if len(log.all) != 1 || log.all[0].Code != filter.CodeClientGone {
				t.Errorf("request log: %+v", log.all)
			}
			if got := scrape(s, "apiserver_request_total{"); len(got) != 1 || !strings.Contains(got[0], `code="499",component="aggregator"`) {
				t.Errorf("counted as %q", got)
			}
			if got := scrape(s, "apiserver_request_terminations_total{"); len(got) != 0 {
				t.Errorf("counted as ended by the server: %q", got)
			}
			if got := scrape(s, "apiserver_request_aborts_total{"); len(got) == 1 != panics {
				t.Errorf("aborts: %q", got)
			}
			if got := events(); len(got) != 1 || got[0].ResponseStatus.Code != 499 {
				t.Errorf("audit: %s", told(got))
			}
			if _, attributes := collected(); attributes["http.response.status_code"] != int64(499) {
				t.Errorf("the span has %v", attributes)
			}
		})
	}
}

// The request log has the request, its user and response, and how it was proxied. An
// Attachment sets the last fields of the header.
func TestRequestLog(t *testing.T) {
	t.Parallel()
	log := &ends{}
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		filter.SetUpstream(r.Context(), filter.Upstream{APIService: "v1.", Backend: "core", Attempts: 1})
		if !filter.Attach(r.Context(), attachment("ours")) || r.Context().Value("word") != "ours" {
			t.Error("nothing is attached")
		}
		w.Header().Set("X-Last", "theirs")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("tea"))
	}, func(c *testConfig) { c.AccessLog = log })
	if got := do(s, "GET", pathPods+"/a?token=abc", "Audit-Id", "mine", "User-Agent", "test").Header()["X-Last"]; len(got) != 1 || got[0] != "ours" {
		t.Errorf("X-Last is %q", got)
	}
	if len(log.all) != 1 {
		t.Fatalf("got %d records", len(log.all))
	}
	end := log.all[0]
	if a := end.Action; end.AuditID != "mine" || a.User.Name != "jane" || a.Verb != "get" || a.Resource != "pods" || a.Namespace != "ns" || a.Name != "a" ||
		end.Code != 418 || end.Bytes != 3 || end.Upstream.Backend != "core" || end.Upstream.Attempts != 1 {
		t.Errorf("got %+v", end)
	}
	if end.FirstByte <= 0 || end.FirstByte > end.Took {
		t.Errorf("first byte after %v, in all %v", end.FirstByte, end.Took)
	}
}
