package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"portico/resource"
	"portico/resource/accesslog"
	"portico/resource/serve/metrics"
	"portico/resource/tracing"
)

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
			var out bytes.Buffer
			log, err := accesslog.Open(accesslog.Config{Path: accesslog.Standard, Output: &out})
			if err != nil {
				t.Fatal(err)
			}
			collector, address := newCollector(t)
			tracer, err := tracing.New(tracing.Config{Endpoint: address, SamplesPerMillion: 1_000_000}, tracing.Options{Service: "test"})
			if err != nil {
				t.Fatal(err)
			}
			m := metrics.New()
			change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n")
			s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
				CountAs(r.Context(), "aggregator")
				if panics {
					panic(http.ErrAbortHandler)
				}
			}, change, func(c *Config) { c.AccessLog, c.Metrics, c.Tracer = log, m, tracer })
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
			_ = log.Run(ctx)
			_ = tracer.Run(ctx)
			var line map[string]any
			if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["code"] != 499.0 {
				t.Errorf("access log: %v: %s", err, &out)
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

func TestAccessLog(t *testing.T) {
	var out bytes.Buffer
	log, err := accesslog.Open(accesslog.Config{Path: accesslog.Standard, Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		SetUpstream(r.Context(), accesslog.Upstream{APIService: "v1.", Backend: "core", Attempts: 1})
		if !Attach(r.Context(), lastWord("ours")) || r.Context().Value("word") != "ours" {
			t.Error("nothing is attached")
		}
		w.Header().Set("X-Last", "theirs")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte("tea"))
	}, func(c *Config) { c.AccessLog = log })
	if got := do(s, "GET", pathPods+"/a?token=abc", "Audit-Id", "mine", "User-Agent", "test").Header()["X-Last"]; len(got) != 1 || got[0] != "ours" {
		t.Errorf("X-Last is %q", got)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = log.Run(ctx)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %q", err, &out)
	}
	for key, want := range map[string]any{
		"auditID": "mine", "user": "jane", "verb": "get", "resource": "pods", "namespace": "ns", "name": "a", "code": 418.0, "bytes": 3.0,
		"userAgent": "test", "uri": pathPods + "/a?token=REDACTED", "apiService": "v1.", "backend": "core", "attempts": 1.0,
	} {
		if line[key] != want {
			t.Errorf("%s: got %v, want %v", key, line[key], want)
		}
	}
	if first, ok := line["firstByte"].(float64); !ok || first <= 0 || first > line["took"].(float64) {
		t.Errorf("first byte after %v, in all %v", line["firstByte"], line["took"])
	}
}

// A line names as whom a request was made, and who made it so; where that is refused,
// who asked for it.
func TestAccessLogOfImpersonation(t *testing.T) {
	var out bytes.Buffer
	log, err := accesslog.Open(accesslog.Config{Path: accesslog.Standard, Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, func(http.ResponseWriter, *http.Request) {}, func(c *Config) {
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
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = log.Run(ctx)
	var got []string
	for text := range bytes.Lines(out.Bytes()) {
		var line struct {
			User, Impersonator string
			Code               int
		}
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		got = append(got, fmt.Sprint(line))
	}
	if want := []string{"{jane  200}", "{john jane 200}", "{jane  403}"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
