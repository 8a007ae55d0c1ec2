package serve

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// Watches are limited by user and in all, and so are streams of discovery, apart from
// them; administrators and Portico's own processes are not.
func TestLimitOfLongRunning(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	s := newTestServer(t, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}, func(c *testConfig) {
		c.MaxLongRunning, c.MaxLongRunningPerUser = 40, 12
		c.Authenticator = named{}
	})
	codes := make(chan int, 1000)
	held := 0
	// as opens streams until one is refused, at most so many, and returns how many.
	as := func(user, path string, most int, header ...string) (open int) {
		for open < most {
			w := make(chan int, 1)
			go func() {
				code := do(s, "GET", path, append([]string{"User", user}, header...)...).Code
				w <- code
				codes <- code
			}()
			select {
			case <-entered:
				open++
				held++
			case code := <-w:
				if code != 429 {
					t.Fatalf("%s: %d", user, code)
				}
				<-codes
				return open
			}
		}
		return open
	}
	watch, discovery := pathPods+"?watch=1", "/apis?watch=true"
	for _, c := range []struct {
		user, path string
		want       int
	}{
		{"jane", watch, 12}, {"john", watch, 12}, {"joe", watch, 12}, {"jim", watch, 3},
		{"jane", discovery, 4}, // an eighth of 40 is 5, of which one user has three quarters
		{"jane", "/apis/g.example.com/v1/things/x/log", 0},
		{"system:portico:core", watch, 50},
	} {
		if n := as(c.user, c.path, 50); n != c.want {
			t.Errorf("%s has %d of %s, want %d", c.user, n, c.path, c.want)
		}
	}
	w := do(s, "GET", watch, "User", "jane")
	wantStatus(t, w.Body, 429, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.")
	if w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %v", w.Header())
	}
	close(release)
	for range held {
		if code := <-codes; code != 200 {
			t.Error(code)
		}
	}
	if got := scrape(s.chain.Metrics(), "portico_longrunning_requests{"); len(got) != 2 || !strings.HasSuffix(got[0], " 0") || !strings.HasSuffix(got[1], " 0") {
		t.Errorf("afterwards %q are counted", got)
	}
}

// A request that asks for another protocol has a slot among the long-running ones, and
// releases it however it ends.
func TestLimitOfUpgrades(t *testing.T) {
	t.Parallel()
	var s *testServer
	counted := func() string {
		return scrape(s.chain.Metrics(), `portico_longrunning_requests{request_kind="other"}`)[0]
	}
	s = newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if got := counted(); !strings.HasSuffix(got, " 1") {
			t.Error(got)
		}
		if resource.ActionFrom(r.Context()).Path == "/panic" {
			panic("in the handler")
		}
	}, func(c *testConfig) { c.MaxLongRunning = 1 })
	for _, path := range []string{"/", "/panic", "/"} {
		do(s, "GET", path, "Connection", "Upgrade", "Upgrade", "websocket")
		if got := counted(); !strings.HasSuffix(got, " 0") {
			t.Errorf("%s: afterwards %s", path, got)
		}
	}
}
