package serve

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"portico/resource"
	"portico/resource/serve/filter"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

// ends is a filter.RequestLog that keeps what it gets.
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

// lastWord is what a response says in the end.
type lastWord string

func (l lastWord) OnHeader(h http.Header, code int) { h["X-Last"] = []string{string(l)} }

func (l lastWord) Value(key any) any {
	if key == "word" {
		return string(l)
	}
	return nil
}

// A client that goes away before there is an answer is no failure of the server's,
// whoever is asked: log, metrics, audit or traces.
func TestClientGone(t *testing.T) {
	for name, panics := range map[string]bool{"the handler gives up": true, "the handler returns": false} {
		t.Run(name, func(t *testing.T) {
			log := &ends{}
			collector, address := newCollector(t)
			tracer, err := tracing.New(tracing.Config{Endpoint: address, SamplesPerMillion: 1_000_000}, tracing.Options{Service: "test"})
			if err != nil {
				t.Fatal(err)
			}
			m := metrics.New()
			change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n")
			s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
				filter.CountAs(r.Context(), "aggregator")
				if panics {
					panic(http.ErrAbortHandler)
				}
			}, change, func(c *testConfig) { c.AccessLog, c.Metrics, c.Tracer = log, m, tracer })
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			func() {
				defer func() {
					if cause := recover(); (cause == http.ErrAbortHandler) != panics {
						t.Errorf("panicked with %v", cause)
					}
				}()
				s.Handler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", pathPods, nil))
			}()
			_ = tracer.Run(ctx)
			if len(log.all) != 1 || log.all[0].Code != filter.CodeClientGone {
				t.Errorf("request log: %+v", log.all)
			}
			if got := scrape(m, "apiserver_request_total{"); len(got) != 1 || !strings.Contains(got[0], `code="499",component="aggregator"`) {
				t.Errorf("counted as %q", got)
			}
			if got := scrape(m, "apiserver_request_terminations_total{"); len(got) != 0 {
				t.Errorf("the server did not end it: %q", got)
			}
			if got := scrape(m, "apiserver_request_aborts_total{"); len(got) == 1 != panics {
				t.Errorf("aborts: %q", got)
			}
			if got := events(); len(got) != 1 || got[0].ResponseStatus.Code != 499 {
				t.Errorf("audit: %s", told(got))
			}
			for _, a := range (<-collector.got).GetAttributes() {
				if a.GetKey() == "http.response.status_code" && a.GetValue().GetIntValue() != 499 {
					t.Errorf("the span says %v", a.GetValue())
				}
			}
		})
	}
}

// The request log gets the request, its user and response, and what a proxy says of it.
func TestRequestLog(t *testing.T) {
	log := &ends{}
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		filter.SetUpstream(r.Context(), filter.Upstream{APIService: "v1.", Backend: "core", Attempts: 1})
		if !filter.Attach(r.Context(), lastWord("ours")) || r.Context().Value("word") != "ours" {
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
		t.Fatalf("got %d", len(log.all))
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

// The request log gets the impersonated user and the impersonator; if impersonation is
// forbidden, the sender.
func TestRequestLogOfImpersonation(t *testing.T) {
	log := &ends{}
	s := newTestServer(t, func(http.ResponseWriter, *http.Request) {}, func(c *testConfig) {
		c.AccessLog = log
		c.Impersonation = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.Header.Get("Impersonate-User") {
				case "":
					next.ServeHTTP(w, r)
				case "john":
					as := *resource.ActionFrom(r.Context())
					as.User, as.Impersonator = &resource.User{Name: "john"}, as.User
					next.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), &as)))
				default:
					w.WriteHeader(http.StatusForbidden)
				}
			})
		}
	})
	do(s, "GET", pathPods+"/a")
	do(s, "GET", pathPods+"/a", "Impersonate-User", "john")
	do(s, "GET", pathPods+"/a", "Impersonate-User", "root")
	var got []string
	for _, end := range log.all {
		got = append(got, fmt.Sprintf("{%s %s %d}", name(end.Action.User), name(end.Action.Impersonator), end.Code))
	}
	if want := []string{"{jane  200}", "{john jane 200}", "{jane  403}"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func name(u *resource.User) string {
	if u == nil {
		return ""
	}
	return u.Name
}
