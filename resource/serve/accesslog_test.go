package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"portico/resource/accesslog"
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

// A client that goes away before there is an answer is no failure of the
// server's.
func TestClientGone(t *testing.T) {
	var out bytes.Buffer
	log, err := accesslog.Open(accesslog.Config{Path: accesslog.Standard, Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, func(c *Config) { c.AccessLog = log })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "GET", pathPods, nil)
	func() {
		defer func() {
			if cause := recover(); cause != http.ErrAbortHandler {
				t.Errorf("panicked with %v", cause)
			}
		}()
		s.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}()
	_ = log.Run(ctx)
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line["code"] != 499.0 {
		t.Errorf("%v: %s", err, &out)
	}
	families, err := s.metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "apiserver_request_aborts_total" && f.GetMetric()[0].GetCounter().GetValue() == 1 {
			return
		}
	}
	t.Error("the abort was not counted")
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
