package serve

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource/audit"
)

// TestShutdownSequence goes through docs/wire.md 11.5, step by step, on a fake
// clock.
func TestShutdownSequence(t *testing.T) {
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

		slow, watch, ended := inBackground(s, pathPods+"?slow=1"), inBackground(s, pathPods+"?watch=1"), make(chan struct{})
		synctest.Wait()
		if code := do(s, "GET", "/readyz").Code; code != 200 {
			t.Fatalf("before: /readyz is %d", code)
		}
		go func() { s.shutdown(); close(ended) }()
		synctest.Wait()
		w := do(s, "GET", "/readyz")
		if w.Code != 500 || w.Body.String() != "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n" {
			t.Errorf("at once: /readyz is %d %q", w.Code, w.Body)
		}
		if code := do(s, "GET", "/livez").Code; code != 200 {
			t.Errorf("at once: /livez is %d", code)
		}
		if code := do(s, "GET", pathPods).Code; code != 200 {
			t.Errorf("during the delay: %d", code)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w = do(s, "GET", pathPods)
		if w.Code != 429 || w.Header().Get("Retry-After") != "5" || w.Header().Get("Connection") != "close" {
			t.Errorf("after the delay: %d %v", w.Code, w.Header())
		}
		wantStatus(t, w.Body, 429, metav1.StatusReasonTooManyRequests, "The apiserver is shutting down, please try again later.")
		if code := do(s, "GET", "/livez").Code; code != 200 {
			t.Errorf("after the delay: /livez is %d", code)
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if len(watch) != 0 || len(slow) != 0 {
			t.Error("a request was cut before those at work had finished")
		}
		close(release)
		if code := <-slow; code != 200 {
			t.Errorf("the request at work got %d", code)
		}
		<-watch
		<-ended
	})
}

// Requests that do not finish are given up after the timeout.
func TestShutdownGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := newTestServer(t, func(http.ResponseWriter, *http.Request) { <-release })
		slow, watch := inBackground(s, pathPods), inBackground(s, pathPods+"?watch=1")
		synctest.Wait()
		began := time.Now()
		s.shutdown()
		if took := time.Since(began); took != DefaultShutdownTimeout+closeTimeout+abandonTimeout {
			t.Errorf("took %v", took)
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

// A request that shutdown gives up and that ends with its connection is logged before Run returns.
func TestAbandonedRequestsAreLogged(t *testing.T) {
	for name, tc := range map[string]struct {
		query string
		ends  func()
		want  string
	}{
		"it panics": {"", func() { panic("late") }, "Panic list"},
		"a watch":   {"?watch=1", func() {}, "ResponseStarted watch " + pathPods + "?watch=1 jane"},
	} {
		t.Run(name, func(t *testing.T) {
			change, events := auditing(t, "- {level: Metadata, omitStages: [RequestReceived]}\n", func(o *audit.Options) { o.Log.Delivery.Mode = audit.ModeBatch })
			log := &ends{}
			atWork := make(chan struct{})
			s := newTestServer(t, func(_ http.ResponseWriter, r *http.Request) {
				close(atWork)
				<-r.Context().Done()
				<-time.After(50 * time.Millisecond) // it has something to put in order
				tc.ends()
			}, change, func(c *testConfig) {
				c.Server.ShutdownTimeout, c.Server.LongShutdownTimeout, c.AccessLog, c.Logger = time.Millisecond, -1, log, slog.New(slowLog{slog.DiscardHandler})
			})
			if err := s.Listen(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			go func() {
				response, err := socketClient(t, strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix), false).Get("http://portico" + pathPods + tc.query)
				if err == nil {
					_ = response.Body.Close()
				}
			}()
			<-atWork
			cancel()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if got := told(events()); !strings.HasPrefix(got, tc.want) {
				t.Errorf("audit: %q", got)
			}
			if got := log.all; len(got) != 1 || got[0].Action.User.Name != "jane" {
				t.Errorf("request log: %+v", got)
			}
		})
	}
}

func inBackground(s *testServer, target string) <-chan int {
	done := make(chan int, 1)
	go func() {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		done <- w.Code
	}()
	return done
}

// Run returns when its context ends, with everything closed.
func TestRunEnds(t *testing.T) {
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	go func() { done <- s.Run(ctx) }()
	path := strings.TrimPrefix(s.cfg.Listen[0].Address, unixPrefix)
	response, err := socketClient(t, path, true).Get("http://portico" + pathPods + "?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("got %v", err)
	}
	if _, err := response.Body.Read(make([]byte, 1)); err == nil {
		t.Error("the watch goes on")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is still there")
	}
}
