package serve

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/audit"
)

// Shutdown follows docs/wire.md 11.5, step by step.
func TestShutdownSequence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		health := NewHealth()
		release := make(chan struct{})
		s := newTestServer(t, NewRouter(Routes{Health: health, Resources: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Query().Has("watch"):
				<-r.Context().Done()
			case r.URL.Query().Has("slow"):
				<-release
			}
		})}).ServeHTTP, func(c *testConfig) {
			c.Server.Health, c.Server.ShutdownDelay, c.RequestTimeout = health, 10*time.Second, time.Hour
		})
		want := func(when, path string, code int) {
			t.Helper()
			if got := do(s, "GET", path).Code; got != code {
				t.Errorf("%s: %s is %d, want %d", when, path, got, code)
			}
		}
		slow, watch, ended := inBackground(s, pathPods+"?slow=1"), inBackground(s, pathPods+"?watch=1"), make(chan struct{})
		synctest.Wait()
		want("before", "/readyz", 200)
		go func() { s.shutdown(); close(ended) }()
		synctest.Wait()
		w := do(s, "GET", "/readyz")
		if w.Code != 500 || w.Body.String() != "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n" {
			t.Errorf("at once: /readyz is %d %q", w.Code, w.Body)
		}
		want("at once", "/livez", 200)
		for _, half := range []struct{ when, connection string }{{"in the first half of the delay", ""}, {"in the second half", "close"}} {
			if w := do(s, "GET", pathPods); w.Code != 200 || w.Header().Get("Connection") != half.connection {
				t.Errorf("%s: %d, Connection %q", half.when, w.Code, w.Header().Get("Connection"))
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		w = do(s, "GET", pathPods)
		if w.Code != 429 || w.Header().Get("Retry-After") != "5" || w.Header().Get("Connection") != "close" {
			t.Errorf("after the delay: %d %v", w.Code, w.Header())
		}
		wantStatus(t, w.Body, 429, metav1.StatusReasonTooManyRequests, "The apiserver is shutting down, please try again later.")
		want("after the delay", "/livez", 200)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(watch) != 0 || len(slow) != 0 {
			t.Error("a request was ended before those in flight had finished")
		}
		close(release)
		if code := <-slow; code != 200 {
			t.Errorf("the request in flight got %d", code)
		}
		<-watch
		<-ended
		want("after the end", pathPods+"?watch=1", 429)
		if n := s.longRunning(); n != 0 {
			t.Errorf("%d long-running requests are counted", n)
		}
	})
}

// Requests that do not finish are given up after the timeout; after a second a line of the log says
// what is waited for.
func TestShutdownGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var log bytes.Buffer
		s := newTestServer(t, func(http.ResponseWriter, *http.Request) { <-release }, func(c *testConfig) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		slow, watch := inBackground(s, pathPods), inBackground(s, pathPods+"?watch=1")
		synctest.Wait()
		began := time.Now()
		s.shutdown()
		if took := time.Since(began); took != DefaultShutdownTimeout+closeTimeout+abandonTimeout {
			t.Errorf("took %v", took)
		}
		if n := strings.Count(log.String(), `msg="waiting for requests in flight" requests=1 atMost=`); n != 1 {
			t.Errorf("%d lines say what is waited for:\n%s", n, &log)
		}
		close(release)
		<-slow
		<-watch
	})
}

// slowLog is a log that takes its time with requests.
type slowLog struct{ slog.Handler }

func (l slowLog) Enabled(ctx context.Context, level slog.Level) bool {
	if level == slog.LevelDebug {
		<-time.After(50 * time.Millisecond)
	}
	return l.Handler.Enabled(ctx, level)
}

// A request that shutdown gives up and that ends with its connection is logged before Run
// returns.
func TestAbandonedRequestsAreLogged(t *testing.T) {
	t.Parallel()
	change, events := auditing(t, completed, batched)
	log := &ends{}
	began := make(chan struct{})
	s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		<-r.Context().Done()
		<-time.After(50 * time.Millisecond) // it still has something to do
		if !r.URL.Query().Has("watch") {
			panic("late")
		}
	}, change, func(c *testConfig) {
		c.Server.ShutdownTimeout, c.AccessLog, c.Logger = time.Millisecond, log, slog.New(slowLog{slog.DiscardHandler})
	})
	stop := s.start(t)
	for _, query := range []string{"", "?watch=1"} {
		go func() {
			response, err := s.client(t, false).Get("http://portico" + pathPods + query)
			if err == nil {
				_ = response.Body.Close()
			}
		}()
		<-began
	}
	stop()
	got := told(events())
	for _, want := range []string{"Panic list", "ResponseStarted watch " + pathPods + "?watch=1 jane"} {
		if !strings.Contains(got, want) {
			t.Errorf("audit: got\n%s\nwant %s", got, want)
		}
	}
	if len(log.all) != 2 || log.all[0].Action.User.Name != "jane" {
		t.Errorf("request log: got %+v", log.all)
	}
}

// When its context ends, Run ends watches, writes the last events of those, and of watches
// that their clients ended, and removes the socket.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	change, events := auditing(t, completed, batched)
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, change)
	stop := s.start(t)
	left, leave := context.WithCancel(t.Context())
	watch := func(ctx context.Context, name string) *http.Response {
		response, err := s.client(t, name == "stays").Do(clientRequest(ctx, "http://x"+pathPods+"?watch=1&container="+name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	watch(left, "left")
	leave()
	stays := watch(t.Context(), "stays")
	stop()
	if _, err := stays.Body.Read(make([]byte, 1)); err == nil {
		t.Error("the watch continues")
	}
	if _, err := os.Stat(s.socket()); err == nil {
		t.Error("the socket is still there")
	}
	got := told(events())
	for _, name := range []string{"left", "stays"} {
		for _, stage := range []string{"ResponseStarted", "ResponseComplete"} {
			if line := stage + " watch " + pathPods + "?watch=1&container=" + name + " jane 200"; strings.Count(got, line) != 1 {
				t.Errorf("want one event %s in\n%s", line, got)
			}
		}
	}
}

// completed are audit rules that record all requests that have begun a response.
const completed = "- {level: Metadata, omitStages: [RequestReceived]}\n"

// batched delivers audit events in the background.
func batched(o *audit.Options) { o.Log.Delivery.Mode = audit.ModeBatch }
