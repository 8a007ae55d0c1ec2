package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"portico/resource/audit"
	"portico/resource/serve/filter"
)

// Audit events of proxied requests have the code that the client got and the body as it
// was sent, which streams as without audit.
func TestAuditThroughTheProxy(t *testing.T) {
	seen, entered := make(chan string), make(chan struct{})
	change, events := auditing(t, "Request")
	front := startChain(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("do") {
		case "stream":
			part := make([]byte, 100)
			n, _ := r.Body.Read(part)
			seen <- string(part[:n])
			rest, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			seen <- string(rest)
			w.WriteHeader(http.StatusCreated)
		case "hang":
			entered <- struct{}{}
			<-r.Context().Done()
		case "wait":
			time.Sleep(audit.Slow + 50*time.Millisecond)
		case "break":
			panic(http.ErrAbortHandler)
		}
	}, change)
	const path = "/apis/g.example.com/v1/things"
	ask := func(ctx context.Context, method, query string, body io.Reader) (int, error) {
		r, err := http.NewRequestWithContext(ctx, method, front.URL+path+query, body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := front.Client().Do(r)
		if err != nil {
			return 0, err
		}
		return res.StatusCode, res.Body.Close()
	}
	sent, sending := io.Pipe()
	go func() {
		_, _ = io.WriteString(sending, `{"metadata":`)
		if got := <-seen; got != `{"metadata":` {
			t.Errorf("the server has seen %q", got)
		}
		_, _ = io.WriteString(sending, `{"name":"x"}}`)
		sending.Close()
		<-seen
	}()
	if code, err := ask(t.Context(), "POST", "?do=stream", sent); code != 201 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
	broken, err := ask(t.Context(), "POST", "?do=break", strings.NewReader(`{}`))
	if err != nil {
		t.Error(err)
	}
	if code, err := ask(t.Context(), "GET", "/x?do=wait", nil); code != 200 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if _, err := ask(ctx, "GET", "/x?do=hang", nil); err == nil {
		t.Error("the client is still there")
	}
	want := fmt.Sprintf(`create ?do=stream 201 "x" {"metadata":{"name":"x"}}
create ?do=break %d "" {}
get /x?do=wait 200 "x"  waited for the server
get /x?do=hang 499 "x" `, broken)
	until(t, "the client's end is recorded", func() bool { return strings.Count(events(), "\n") == strings.Count(want, "\n") })
	if got := strings.ReplaceAll(events(), path, ""); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// auditing has a chain audited, and returns a line for each event that ends a
// request.
func auditing(t *testing.T, level string) (change func(*filter.Config), events func() string) {
	t.Helper()
	o := audit.DefaultOptions()
	dir := t.TempDir()
	o.PolicyFile, o.Log.Path, o.Log.MaxSize = filepath.Join(dir, "policy"), filepath.Join(dir, "log"), 0
	policy := `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"` + level + `"}]}`
	if err := os.WriteFile(o.PolicyFile, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	auditor, err := audit.Open(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return func(c *filter.Config) { c.Audit = auditor }, func() string {
		text, err := os.ReadFile(o.Log.Path)
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for line := range strings.Lines(string(text)) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			object := ""
			if e.RequestObject != nil {
				object = string(e.RequestObject.Raw)
			}
			if took, err := time.ParseDuration(e.Annotations[annotationUpstream]); err == nil && took > audit.Slow {
				object += " waited for the server"
			}
			lines = append(lines, fmt.Sprintf("%s %s %d %q %s", e.Verb, e.RequestURI, e.ResponseStatus.Code, e.ObjectRef.Name, object))
		}
		return strings.Join(lines, "\n")
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
