package upstream

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"portico/apiservice/availability"
)

// asks sends a request and returns the name in the answer.
func asks(t *testing.T, pinned http.RoundTripper) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := pinned.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// stay fails unless several requests are answered by the same endpoint, which it
// returns.
func stay(t *testing.T, pinned http.RoundTripper) string {
	t.Helper()
	first := asks(t, pinned)
	for range 10 {
		if next := asks(t, pinned); next != first {
			t.Fatalf("answers %s, then %s", first, next)
		}
	}
	return first
}

// Pinned sends requests to one endpoint, the same first one in every gateway, until
// that fails its checks, answers 503 or refuses connections.
func TestPinned(t *testing.T) {
	nodes := map[string]*node{}
	var list []Endpoint
	var unwell [3]atomic.Bool
	for i := range unwell {
		var n *node
		n = startNode(t, "tls", func(w http.ResponseWriter, _ *http.Request) {
			if unwell[i].Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, n.endpoint().URL)
		})
		nodes[n.endpoint().URL] = n
		list = append(list, n.endpoint())
	}
	policy := turns()
	policy.Outlier.ConsecutiveErrors, policy.Outlier.ConsecutiveLocalErrors = 0, 0
	u := over(t, policy, list...)
	pinned := u.Pinned()
	first := stay(t, pinned)
	if other := stay(t, over(t, policy, list[2], list[1], list[0]).Pinned()); other != first {
		t.Errorf("one gateway asks %s, another %s", first, other)
	}
	// The check fails, and passes again.
	u.SetVerdict(first, availability.Verdict{Known: true, Err: errors.New("gone")})
	second := stay(t, pinned)
	u.SetVerdict(first, availability.Verdict{Known: true, Healthy: true})
	if back := stay(t, pinned); second == first || back != second {
		t.Errorf("after %s: %s, then %s", first, second, back)
	}
	// It answers that it is not well; later it is.
	for i := range list {
		unwell[i].Store(list[i].URL == second)
	}
	third := stay(t, pinned)
	for i := range list {
		unwell[i].Store(false)
	}
	if back := stay(t, pinned); third == second || back != third {
		t.Errorf("after %s: %s, then %s", second, third, back)
	}
	// Nobody listens there.
	nodes[third].Listener.Close()
	nodes[third].CloseClientConnections()
	if fourth := stay(t, pinned); fourth == third {
		t.Errorf("%s is gone, and answers", third)
	}
}

// Without retries, a request fails with its endpoint, and the next is sent to another.
// The only endpoint stays the one when others are added.
func TestPinnedMovesOn(t *testing.T) {
	var silent atomic.Bool
	only := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			<-r.Context().Done()
			return
		}
		_, _ = io.WriteString(w, "first")
	})
	list := []Endpoint{only.endpoint()}
	policy := turns()
	policy.Retries.Attempts = 1
	u := over(t, policy, list...)
	pinned := u.Pinned()
	stay(t, pinned)
	for range 7 {
		n := startNode(t, "tls", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") })
		list = append(list, n.endpoint())
	}
	u.SetEndpoints(list)
	if got := stay(t, pinned); got != "first" {
		t.Errorf("others came, and %s answers", got)
	}
	silent.Store(true)
	ask := func(client *http.Client) error {
		res, err := client.Get("https://example.com/apis")
		if err == nil {
			res.Body.Close()
		}
		return err
	}
	if ask(&http.Client{Transport: pinned, Timeout: 50 * time.Millisecond}) == nil {
		t.Error("a silent endpoint answers")
	}
	if got := stay(t, pinned); got != "other" {
		t.Errorf("%s answers", got)
	}
	// What fails everywhere begins anew.
	u.SetEndpoints(nil)
	if ask(&http.Client{Transport: pinned}) == nil {
		t.Error("without endpoints it is answered")
	}
	u.SetEndpoints(list[1:])
	stay(t, pinned)
}

// Answers to pinned requests neither eject an endpoint nor reset its failures.
func TestPinnedDoesNotCount(t *testing.T) {
	for name, fails := range map[string]http.HandlerFunc{
		"an error":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"unwell":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half of one": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(500)
		},
	} {
		t.Run(name, func(t *testing.T) {
			handle := func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					fails(w, r)
				}
			}
			u := over(t, turns(), startNode(t, "tls", handle).endpoint(), startNode(t, "tls", handle).endpoint())
			pinned := u.Pinned()
			for range 20 {
				if res, err := (&http.Client{Transport: pinned}).Get("https://example.com/apis"); err == nil {
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			}
			counted := uint64(0)
			for _, s := range u.Status().Endpoints {
				counted += s.Errors
				if s.Ejections != 0 {
					t.Errorf("%+v", s)
				}
			}
			if counted < 20 {
				t.Errorf("%d errors are shown", counted)
			}
			for _, e := range u.endpoints {
				for range 2 {
					e.health.Breaker.AnswerFailed(0)
					e.health.Breaker.ConnectionFailed(0)
				}
			}
			for range 3 { // that it answers says nothing either
				res, err := (&http.Client{Transport: pinned}).Head("https://example.com/apis")
				if err != nil || res.StatusCode != http.StatusOK {
					t.Fatal(res, err)
				}
				res.Body.Close()
			}
			for _, e := range u.endpoints {
				if !e.health.Breaker.AnswerFailed(3) || !e.health.Breaker.ConnectionFailed(3) {
					t.Errorf("%s: the series has ended", e.URL)
				}
			}
		})
	}
}
