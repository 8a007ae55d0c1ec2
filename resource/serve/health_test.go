package serve

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"portico/resource/serve/metrics"
)

// Health endpoints have their checks, of which some can be excluded, and
// reasons of failures are shown by single checks only.
func TestHealth(t *testing.T) {
	t.Parallel()
	h := NewHealth()
	bad := errors.New("no quorum")
	h.AddReady("etcd", func(*http.Request) error { return bad })
	h.AddReady("informer-sync", func(*http.Request) error { return nil })
	h.AddReady("poststarthook/rbac/bootstrap-roles", func(*http.Request) error { return nil })
	h.AddAside("writes", func(*http.Request) error { return errors.New("not yet") })
	for _, c := range []struct {
		path string
		code int
		body string
	}{
		{"/livez", 200, "ok"},
		{"/livez?verbose", 200, "[+]ping ok\nlivez check passed\n"},
		{"/healthz", 500, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]informer-sync ok\n[+]poststarthook/rbac/bootstrap-roles ok\nhealthz check failed\n"},
		{"/readyz", 500, "[+]ping ok\n[-]etcd failed: reason withheld\n[+]informer-sync ok\n[+]poststarthook/rbac/bootstrap-roles ok\n[+]shutdown ok\nreadyz check failed\n"},
		{"/readyz?exclude=etcd", 200, "ok"},
		{"/readyz?verbose=true&exclude=etcd&exclude=nope&exclude=no%22pe", 200,
			"[+]ping ok\n[+]etcd excluded: ok\n[+]informer-sync ok\n[+]poststarthook/rbac/bootstrap-roles ok\n[+]shutdown ok\n" +
				"warn: some health checks cannot be excluded: no matches for \"no\\\"pe\",\"nope\"\nreadyz check passed\n"},
		{"/readyz/ping", 200, "ok"},
		{"/readyz/shutdown", 200, "ok"},
		{"/readyz/etcd", 500, "internal server error: no quorum\n"},
		{"/readyz/poststarthook/rbac/bootstrap-roles", 200, "ok"},
		{"/readyz/writes", 500, "internal server error: not yet\n"},
		{"/livez/writes", 404, "404 page not found\n"},
		{"/livez/etcd", 404, "404 page not found\n"},
		{"/healthz/shutdown", 404, "404 page not found\n"},
		{"/readyz/", 404, "404 page not found\n"},
		{"/readyx", 404, "404 page not found\n"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", c.path, nil))
		if w.Code != c.code || w.Body.String() != c.body {
			t.Errorf("%s: got %d\n%s\nwant %d\n%s", c.path, w.Code, w.Body, c.code, c.body)
		}
		if w.Header().Get("Content-Type") != "text/plain; charset=utf-8" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: header %v", c.path, w.Header())
		}
	}
	bad = nil
	h.AddReady("etcd", func(*http.Request) error { return bad })
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/healthz?verbose", nil))
	if want := "[+]ping ok\n[+]etcd ok\n[+]informer-sync ok\n[+]poststarthook/rbac/bootstrap-roles ok\nhealthz check passed\n"; w.Body.String() != want {
		t.Errorf("after replacing a check: %s", w.Body)
	}
	if paths := h.Paths(); !slices.Contains(paths, "/readyz/shutdown") || slices.Contains(paths, "/livez/shutdown") {
		t.Errorf("paths %v", strings.Join(paths, " "))
	}
}

// blockedLog is a log that cannot be written until the channel is closed.
type blockedLog struct {
	slog.Handler
	written chan struct{}
	records *atomic.Int32
}

func (blockedLog) Enabled(context.Context, slog.Level) bool { return true }

func (l blockedLog) Handle(context.Context, slog.Record) error {
	l.records.Add(1)
	<-l.written
	return nil
}

// A check that fails is logged once, after the grace of the start, and again after it has passed. Requests that exclude it log
// nothing, and a client that leaves or sets a timeout does not make it fail; with the checks of maxDetached requests in progress
// the checks of such a client are cancelled, and neither logged nor counted. A response that is not read is no check in progress.
// A log that is blocked does not delay checks, and one failure of a check at most waits for it.
func TestFailedChecksAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		written, records := make(chan struct{}), new(atomic.Int32)
		h := NewHealth()
		h.logger = func() *slog.Logger { return slog.New(blockedLog{slog.DiscardHandler, written, records}) }
		var fault error
		h.AddLive("broken", func(r *http.Request) error { return errors.Join(fault, r.Context().Err()) })
		ask := func(ctx context.Context, path string, logged int32) {
			t.Helper()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", path, nil))
			synctest.Wait()
			if n := records.Load(); n != logged {
				t.Errorf("%s: %s: %d failures are logged, not %d", path, w.Body, n, logged)
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		fault = errors.New("broken")
		ask(t.Context(), "/livez", 0)
		time.Sleep(startGrace)
		for _, path := range []string{"/livez", "/livez?exclude=broken", "/readyz", "/livez"} {
			ask(t.Context(), path, 1)
		}
		fault = errors.New("broken otherwise")
		ask(t.Context(), "/livez", 1) // the log is blocked
		close(written)
		synctest.Wait()
		for _, path := range []string{"/livez", "/livez?exclude=broken", "/readyz", "/livez"} {
			ask(t.Context(), path, 2)
		}
		fault = nil
		ask(gone, "/livez", 2)
		ask(t.Context(), "/livez", 2)
		single := httptest.NewRecorder()
		h.ServeHTTP(single, httptest.NewRequestWithContext(gone, "GET", "/livez/broken", nil))
		if single.Body.String() != "ok" {
			t.Errorf("a single check whose client has left: %s", single.Body)
		}
		unread, read := make(chan struct{}), new(sync.WaitGroup)
		for _, path := range []string{"/livez", "/livez/broken"} {
			read.Go(func() {
				h.ServeHTTP(unreadResponse{httptest.NewRecorder(), unread}, httptest.NewRequest("GET", path, nil))
			})
		}
		synctest.Wait()
		if n := len(h.detached); n > 0 {
			t.Errorf("%d checks are in progress, though only responses are not read", n)
		}
		close(unread)
		read.Wait()
		for range maxDetached {
			h.detached <- struct{}{}
		}
		expired, cancel := context.WithTimeout(t.Context(), 0)
		defer cancel()
		counted := errorsOf(h, "broken")
		ask(gone, "/livez", 2)
		ask(expired, "/livez", 2)
		if n := errorsOf(h, "broken"); n != counted || counted == "" {
			t.Errorf("cancelled checks are counted: %s, before %s", n, counted)
		}
		for range maxDetached {
			<-h.detached
		}
		fault = errors.New("broken otherwise")
		ask(gone, "/livez", 3)
	})
}

// unreadResponse is a response that cannot be written until the channel is closed.
type unreadResponse struct {
	http.ResponseWriter
	read chan struct{}
}

func (u unreadResponse) Write(p []byte) (int, error) {
	<-u.read
	return u.ResponseWriter.Write(p)
}

// errorsOf returns the metrics of failures of a check.
func errorsOf(h *Health, check string) string {
	w := httptest.NewRecorder()
	h.results.Handler().ServeHTTP(w, httptest.NewRequest("GET", metrics.PathSLIs, nil))
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.Contains(line, `name="`+check+`"`) && strings.Contains(line, `status="error"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// Warnings are lines of the verbose form of /readyz, which they do not make fail.
func TestReadyzWarnings(t *testing.T) {
	t.Parallel()
	h := NewHealth()
	h.AddWarnings(func() []string { return []string{"the serving certificate a.crt ends soon"} })
	for path, want := range map[string]string{
		"/readyz":          "ok",
		"/readyz?verbose":  "[+]ping ok\n[+]shutdown ok\nwarn: the serving certificate a.crt ends soon\nreadyz check passed\n",
		"/livez?verbose":   "[+]ping ok\nlivez check passed\n",
		"/healthz?verbose": "[+]ping ok\nhealthz check passed\n",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: %d\n%s\nwant\n%s", path, w.Code, w.Body, want)
		}
	}
}

// /metrics/slis has the results of the health checks.
func TestSLIs(t *testing.T) {
	t.Parallel()
	h, failing := NewHealth(), true
	h.AddReady("storage", func(*http.Request) error {
		if failing {
			return errors.New("away")
		}
		return nil
	})
	router := NewRouter(Routes{Health: h})
	ask := func(path string) string {
		w := httptest.NewRecorder()
		router.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w.Body.String()
	}
	ask("/readyz")
	failing = false
	ask("/readyz?exclude=ping")
	ask("/livez")
	ask("/readyz/storage")
	text := ask("/metrics/slis")
	for _, want := range []string{
		`kubernetes_healthcheck{name="storage",type="readyz"} 1`,
		`kubernetes_healthcheck{name="ping",type="livez"} 1`,
		`kubernetes_healthchecks_total{name="storage",status="error",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="storage",status="success",type="readyz"} 1`,
		`kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 1`,
		`process_start_time_seconds `,
	} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("missing %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, `name="storage",type="livez"`) {
		t.Errorf("/livez has no check of the storage:\n%s", text)
	}
	if !strings.Contains(ask("/"), `"/metrics/slis"`) {
		t.Error("not in the index")
	}
}

// A post-start check fails, with its reason, until it has passed once. /livez lists it once it has passed. Every endpoint
// lists an optional one once it has passed.
func TestPostStartChecks(t *testing.T) {
	t.Parallel()
	h := NewHealth()
	var needed, optional bool
	h.AddPostStartCheck("needed", Until(func() bool { return needed }, "no routes yet"))
	h.AddOptionalPostStartCheck("optional", Until(func() bool { return optional }, "no core server"))
	want := func(about, path string, code int, checks ...string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path+"?verbose", nil))
		var got []string
		for line := range strings.Lines(w.Body.String()) {
			if name, _, _ := strings.Cut(line, " "); strings.Contains(name, "needed") || strings.Contains(name, "optional") {
				got = append(got, name)
			}
		}
		if w.Code != code || !slices.Equal(got, checks) {
			t.Errorf("%s, %s: got %d %q, want %d %q", about, path, w.Code, got, code, checks)
		}
	}
	want("at the start", "/livez", 200)
	want("at the start", "/healthz", 500, "[-]needed")
	want("at the start", "/readyz", 500, "[-]needed")
	for _, endpoint := range endpoints {
		want("at the start", "/"+endpoint+"/needed", 500)
		want("at the start", "/"+endpoint+"/optional", 500)
	}
	for path, reason := range map[string]string{"/readyz/needed": "no routes yet", "/livez/optional": "no core server"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if want := "internal server error: " + reason + "\n"; w.Body.String() != want {
			t.Errorf("%s: got %q, want %q", path, w.Body, want)
		}
	}
	needed = true
	want("when the server is ready", "/livez", 200, "[+]needed")
	want("when the server is ready", "/readyz", 200, "[+]needed")
	optional = true
	for _, endpoint := range endpoints {
		want("when all is done", "/"+endpoint, 200, "[+]needed", "[+]optional")
	}
	needed, optional = false, false
	for _, endpoint := range endpoints {
		want("later", "/"+endpoint, 200, "[+]needed", "[+]optional")
		want("later", "/"+endpoint+"/optional", 200)
	}
}
