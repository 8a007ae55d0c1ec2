package serve

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/serve/filter"
)

func TestLimit(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Block") != "" {
			entered <- struct{}{}
			<-release
		}
	}, func(c *testConfig) {
		c.MaxInFlight, c.MaxMutatingInFlight = 1, 1
		c.Authenticator = groupsOfHeader{}
	})
	blocked := make(chan int)
	block := func(method string) {
		go func() { blocked <- do(s, method, pathPods, "Block", "1").Code }()
		<-entered
	}
	block("GET")
	w := do(s, "GET", pathPods)
	if w.Code != 429 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	wantStatus(t, w.Body, 429, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later.")
	for name, request := range map[string][]string{
		"writes are counted apart":   {"POST", pathPods},
		"watches are not counted":    {"GET", pathPods + "?watch=1"},
		"nor are probes":             {"GET", "/readyz"},
		"masters are never refused":  {"GET", pathPods, "Group", resource.GroupMasters},
		"and a bound is for its own": {"PUT", pathPods + "/x"},
	} {
		if w := do(s, request[0], request[1], request[2:]...); w.Code != 200 {
			t.Errorf("%s: got %d", name, w.Code)
		}
	}
	block("POST")
	if w := do(s, "DELETE", pathPods+"/x"); w.Code != 429 {
		t.Errorf("got %d", w.Code)
	}
	close(release)
	if first, second := <-blocked, <-blocked; first != 200 || second != 200 {
		t.Error("a request at work was hurt")
	}
	if w := do(s, "GET", pathPods); w.Code != 200 {
		t.Errorf("afterwards: got %d", w.Code)
	}
}

// A proxied request releases its slot once, whatever its result is.
func TestProxiedRequestsReleaseTheirSlot(t *testing.T) {
	passed, answer := make(chan struct{}), make(chan struct{})
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Pass") != "" {
			filter.ReleaseInFlight(r.Context())
			filter.ReleaseInFlight(r.Context())
			passed <- struct{}{}
			<-answer
		}
	}, func(c *testConfig) { c.MaxInFlight, c.MaxMutatingInFlight = 1, 1 })
	ended := make(chan int)
	for range 5 {
		go func() { ended <- do(s, "GET", pathPods, "Pass", "1").Code }()
		<-passed
	}
	if w := do(s, "GET", pathPods); w.Code != 200 {
		t.Errorf("beside five that were passed on: %d", w.Code)
	}
	close(answer)
	for range 5 {
		if code := <-ended; code != 200 {
			t.Errorf("one that was passed on: %d", code)
		}
	}
	wantInFlight(t, s, 0)
	filter.ReleaseInFlight(t.Context()) // outside of a chain
}

// wantInFlight checks what apiserver_current_inflight_requests says of reads.
func wantInFlight(t *testing.T, s *testServer, want float64) {
	t.Helper()
	families, err := s.chain.Metrics().Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "apiserver_current_inflight_requests" && m.GetLabel()[0].GetValue() == "readOnly" && m.GetGauge().GetValue() != want {
				t.Errorf("%v reads in flight, want %v", m.GetGauge().GetValue(), want)
			}
		}
	}
}

// named authenticates the user in the header User.
type named struct{}

func (named) Authenticate(r *http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: r.Header.Get("User")}, true, nil
}

// One user cannot have all places: some are left for others, also if two try.
func TestLimitOfOneUser(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s := newTestServer(t, func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	}, func(c *testConfig) {
		c.MaxInFlight = 40
		c.Authenticator = named{}
	})
	codes := make(chan int, 200)
	// as sends requests until there is no slot for the user, and returns how many there were.
	as := func(user string) (places int) {
		for {
			go func() { codes <- do(s, "GET", pathPods, "User", user).Code }()
			select {
			case <-entered:
				places++
			case code := <-codes:
				if code != 429 {
					t.Fatal(code)
				}
				return places
			}
		}
	}
	for _, u := range []struct {
		name   string
		places int
	}{{"greedy", 30}, {"other", 8}, {"last", 2}} {
		if n := as(u.name); n != u.places {
			t.Errorf("%s has %d places, want %d", u.name, n, u.places)
		}
	}
	close(release)
	for range 40 {
		if code := <-codes; code != 200 {
			t.Error(code)
		}
	}
	wantInFlight(t, s, 0)
}

// Who says that it takes a stream of events is counted like anybody until it is
// answered with one.
func TestLimitOfStreams(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s := newTestServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Want"))
		w.WriteHeader(http.StatusOK)
		if r.Header.Get("Block") != "" {
			begun <- struct{}{}
			<-end
		}
	}, func(c *testConfig) {
		c.MaxInFlight = 1
		c.LongRunning = func(r *http.Request, _ *resource.Action) bool { return r.Header.Get("Accept") != "" }
	})
	ended := make(chan struct{})
	ask := func(answer string) {
		go func() {
			do(s, "GET", pathPods, "Accept", "text/event-stream", "Want", answer, "Block", "1")
			ended <- struct{}{}
		}()
		<-begun
	}
	ask("text/event-stream; charset=utf-8")
	ask("text/event-stream")
	ask("application/json")
	for _, accept := range []string{"text/event-stream", ""} {
		if w := do(s, "GET", pathPods, "Accept", accept); w.Code != 429 {
			t.Errorf("beside a download, as %q: %d", accept, w.Code)
		}
	}
	close(end)
	for range 3 {
		<-ended
	}
	if w := do(s, "GET", pathPods); w.Code != 200 {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// groupsOfHeader takes the group from the header Group.
type groupsOfHeader struct{}

func (groupsOfHeader) Authenticate(r *http.Request) (*resource.User, bool, error) {
	return &resource.User{Name: "jane", Groups: r.Header["Group"]}, true, nil
}
