package serve

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/serve/filter"
)

// wantGauge checks the value of a gauge.
func wantGauge(t *testing.T, s *testServer, series, want string) {
	t.Helper()
	if got := scrape(s, series); len(got) != 1 || got[0] != series+" "+want {
		t.Errorf("got %q, want %s %s", got, series, want)
	}
}

const (
	seriesReads       = `apiserver_current_inflight_requests{request_kind="readOnly"}`
	seriesLongRunning = `portico_longrunning_requests{request_kind="other"}`
)

// holding is a server. Its handlers wait until release if the request has the header Hold.
type holding struct {
	*testServer
	entered, end chan struct{}
	held         int
	codes        chan int
}

func newHolding(t *testing.T, change func(*testConfig), before http.HandlerFunc) *holding {
	h := &holding{entered: make(chan struct{}), end: make(chan struct{}), codes: make(chan int, 100)}
	h.testServer = newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		before(w, r)
		if r.Header.Get("Hold") != "" {
			h.entered <- struct{}{}
			<-h.end
		}
	}, change)
	return h
}

// hold sends a request and reports whether its handler waits; the other response is 429.
func (h *holding) hold(t *testing.T, method, target string, header ...string) bool {
	t.Helper()
	code := make(chan int, 1)
	go func() {
		got := do(h.testServer, method, target, append([]string{"Hold", "1"}, header...)...).Code
		code <- got
		h.codes <- got
	}()
	select {
	case <-h.entered:
		h.held++
		return true
	case got := <-code:
		if <-h.codes; got != http.StatusTooManyRequests {
			t.Errorf("%s %s: got %d", method, target, got)
		}
		return false
	}
}

// release ends the held requests, which must succeed.
func (h *holding) release(t *testing.T) {
	t.Helper()
	close(h.end)
	for range h.held {
		if code := <-h.codes; code != 200 {
			t.Errorf("a held request got %d", code)
		}
	}
}

func nothing(http.ResponseWriter, *http.Request) {}

// Reads and writes in flight have limits of their own. Watches and probes do not count, and
// administrators are not refused.
func TestLimit(t *testing.T) {
	t.Parallel()
	s := newHolding(t, func(c *testConfig) { c.MaxInFlight, c.MaxMutatingInFlight = 1, 1 }, nothing)
	if !s.hold(t, "GET", pathPods) {
		t.Fatal("the first request is refused")
	}
	w := do(s.testServer, "GET", pathPods)
	if w.Code != 429 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	wantStatus(t, w.Body, 429, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.")
	for name, request := range map[string][]string{
		"a write": {"POST", pathPods}, "an update": {"PUT", pathPods + "/x"}, "a watch": {"GET", pathPods + "?watch=1"},
		"a probe": {"GET", "/readyz"}, "an administrator": {"GET", pathPods, "Group", resource.GroupMasters},
	} {
		if w := do(s.testServer, request[0], request[1], request[2:]...); w.Code != 200 {
			t.Errorf("%s: got %d", name, w.Code)
		}
	}
	if !s.hold(t, "POST", pathPods) || s.hold(t, "DELETE", pathPods+"/x") {
		t.Error("the limit of writes is not 1")
	}
	s.release(t)
	wantGauge(t, s.testServer, seriesReads, "0")
	if w := do(s.testServer, "GET", pathPods); w.Code != 200 {
		t.Errorf("afterwards: got %d", w.Code)
	}
}

// A proxied request releases its slot once.
func TestProxiedRequestsReleaseTheirSlot(t *testing.T) {
	t.Parallel()
	s := newHolding(t, func(c *testConfig) { c.MaxInFlight, c.MaxMutatingInFlight = 1, 1 }, func(_ http.ResponseWriter, r *http.Request) {
		filter.ReleaseInFlight(r.Context())
		filter.ReleaseInFlight(r.Context())
	})
	for range 5 {
		if !s.hold(t, "GET", pathPods) {
			t.Error("refused beside requests that were passed on")
		}
	}
	s.release(t)
	wantGauge(t, s.testServer, seriesReads, "0")
	filter.ReleaseInFlight(t.Context()) // outside of a chain
}

// No user gets all slots: requests, watches and streams of discovery are each shared, and
// long-running ones have a limit by user. Portico's own processes have no limit.
func TestLimitsOfUsers(t *testing.T) {
	t.Parallel()
	s := newHolding(t, func(c *testConfig) { c.MaxInFlight, c.MaxLongRunning, c.MaxLongRunningPerUser = 40, 40, 12 }, nothing)
	watch, discovery := pathPods+"?watch=1", "/apis?watch=true"
	for _, c := range []struct {
		user, path string
		want       int
	}{
		{"greedy", pathPods, 27}, {"other", pathPods, 3}, {"last", pathPods, 1}, {"one more", pathPods, 1},
		{"jane", watch, 12}, {"john", watch, 12}, {"joe", watch, 6}, {"jim", watch, 1},
		{"jane", discovery, 4}, // an eighth of 40 is 5, of which one is the reserve
		{"jane", "/apis/g.example.com/v1/things/x/log", 0},
		{"system:portico:core", watch, 50},
	} {
		n := 0
		for n < 50 && s.hold(t, "GET", c.path, "User", c.user) {
			n++
		}
		if n != c.want {
			t.Errorf("%s has %d of %s, want %d", c.user, n, c.path, c.want)
		}
	}
	w := do(s.testServer, "GET", watch, "User", "jane")
	wantStatus(t, w.Body, 429, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.")
	if w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %v", w.Header())
	}
	s.release(t)
	wantGauge(t, s.testServer, seriesReads, "0")
	wantGauge(t, s.testServer, seriesLongRunning, "0")
	wantGauge(t, s.testServer, `portico_longrunning_requests{request_kind="discovery"}`, "0")
}

// A request that accepts a stream of events holds a slot in flight until its
// response is one.
func TestLimitOfStreams(t *testing.T) {
	t.Parallel()
	s := newHolding(t, func(c *testConfig) {
		c.MaxInFlight = 1
		c.LongRunning = func(r *http.Request, _ *resource.Action) bool { return r.Header.Get("Accept") != "" }
	}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Want"))
		w.WriteHeader(http.StatusOK)
	})
	for _, response := range []string{"text/event-stream; charset=utf-8", "text/event-stream", "application/json"} {
		if !s.hold(t, "GET", pathPods, "Accept", "text/event-stream", "Want", response) {
			t.Errorf("%s: refused beside streams", response)
		}
	}
	for _, accept := range []string{"text/event-stream", ""} {
		if w := do(s.testServer, "GET", pathPods, "Accept", accept); w.Code != 429 {
			t.Errorf("beside a download, as %q: got %d", accept, w.Code)
		}
	}
	s.release(t)
	if w := do(s.testServer, "GET", pathPods); w.Code != 200 {
		t.Errorf("afterwards: got %d", w.Code)
	}
}

// A request that asks for another protocol has a slot among the long-running ones, and
// releases it however it ends.
func TestLimitOfUpgrades(t *testing.T) {
	t.Parallel()
	var s *testServer
	s = newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		wantGauge(t, s, seriesLongRunning, "1")
		if strings.HasSuffix(r.URL.Path, "/panic") {
			panic("in the handler")
		}
	}, func(c *testConfig) { c.MaxLongRunning = 1 })
	for _, path := range []string{"/", "/panic", "/"} {
		do(s, "GET", path, "Connection", "Upgrade", "Upgrade", "websocket")
		wantGauge(t, s, seriesLongRunning, "0")
	}
}
