package routing

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"portico/discovery"
	"portico/discovery/sources"
)

// A stream that ends as soon as it has told everything, again and again, is opened
// ever more seldom: each has all routes looked at. A server that is only started
// again is followed at once.
func TestAfterStream(t *testing.T) {
	ended := errors.New("the server ended it")
	pauses := func(told bool, lasted time.Duration, n int) (all []time.Duration) {
		last := time.Duration(0)
		for range n {
			last = afterStream(last, told, lasted, ended)
			all = append(all, last)
		}
		return all
	}
	const ms = time.Millisecond
	for _, tc := range []struct {
		name   string
		told   bool
		lasted time.Duration
		first  []time.Duration
		last   time.Duration
	}{
		{"it lasts", true, streamLasts, []time.Duration{20 * ms, 20 * ms}, 20 * ms},
		{"it ends at once", true, ms, []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamShortMax},
		{"nobody is there", false, ms, []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamRetryMax},
		{"nobody says anything", false, time.Minute, []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamRetryMax},
	} {
		got := pauses(tc.told, tc.lasted, 12)
		for i, want := range tc.first {
			if got[i] != want {
				t.Errorf("%s: the %d. pause is %v, want %v", tc.name, i+1, got[i], want)
			}
		}
		if got[11] != tc.last {
			t.Errorf("%s: the last pause is %v, want %v", tc.name, got[11], tc.last)
		}
	}
}

// refusal is how following ends with a server that answers so; on says what it refuses.
func refusal(t *testing.T, on func(r *http.Request) bool, code int, retryAfter string) error {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !on(r) {
			http.NotFound(w, r) // it has no core group
			return
		}
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
	}))
	defer server.Close()
	s := sources.NewSource(sources.Config{Name: "test", BaseURL: server.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {}})
	return s.Follow(t.Context(), func() {})
}

// A server that refuses the stream, or everything, is asked ever more seldom, and not
// before the time that it asks for; one that is away is asked as often as before.
func TestAfterRefusal(t *testing.T) {
	everything := func(*http.Request) bool { return true }
	stream := func(r *http.Request) bool { return r.URL.Query().Has("watch") }
	const ms = time.Millisecond
	for _, tc := range []struct {
		name       string
		on         func(r *http.Request) bool
		code       int
		retryAfter string
		first      []time.Duration
		last       time.Duration
	}{
		{"the gateway is not known to it", everything, http.StatusUnauthorized, "", []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamShortMax},
		{"the gateway may not", stream, http.StatusForbidden, "", []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamShortMax},
		{"it has no time", stream, http.StatusRequestTimeout, "", []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamShortMax},
		{"it says when", stream, http.StatusTooManyRequests, "30", []time.Duration{30 * time.Second, 30 * time.Second}, 30 * time.Second},
		{"it begins", everything, http.StatusServiceUnavailable, "1", []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, streamShortMax},
		{"it means for ever", stream, http.StatusServiceUnavailable, "99999999999999999999", []time.Duration{streamUnknown}, streamUnknown},
		{"it says it by a date", stream, http.StatusServiceUnavailable, "Wed, 21 Oct 2026 07:28:00 GMT", []time.Duration{20 * ms, 40 * ms}, streamShortMax},
		{"it says nonsense", stream, http.StatusServiceUnavailable, "-5", []time.Duration{20 * ms, 40 * ms}, streamShortMax},
	} {
		err := refusal(t, tc.on, tc.code, tc.retryAfter)
		var got []time.Duration
		for last := time.Duration(0); len(got) < 12; got = append(got, last) {
			last = afterStream(last, false, time.Millisecond, err)
		}
		for i, want := range tc.first {
			if got[i] != want {
				t.Errorf("%s: the %d. pause is %v, want %v (%v)", tc.name, i+1, got[i], want, err)
			}
		}
		if got[11] != tc.last {
			t.Errorf("%s: the last pause is %v, want %v (%v)", tc.name, got[11], tc.last, err)
		}
		if next := afterStream(got[11], false, 0, errors.New("connection refused")); next > streamRetryMax {
			t.Errorf("%s: once it is away, the pause is %v", tc.name, next)
		}
		if next := afterStream(got[11], true, streamLasts, errors.New("the server ended it")); next != streamRetry {
			t.Errorf("%s: after a good stream, the pause is %v", tc.name, next)
		}
	}
}

// A passed check ends the wait for a server that refused, but neither for one that asked
// for more time nor for one that does not stream.
func TestWaitToFollow(t *testing.T) {
	for wait, ends := range map[time.Duration]bool{streamShortMax: true, 30 * time.Second: false, streamUnknown: false} {
		srv := &Server{}
		srv.answered.Set()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if got := srv.waitToFollow(ctx, wait); got != ends {
			t.Errorf("waiting for %v ended before its time: %v", wait, got)
		}
		cancel()
	}
}

// A stream that passes its bound is opened again after a minute, then after twice as
// long each time; once it is a good one, as after the first failure.
func TestAfterStreamThatIsTooLong(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json"+discovery.StreamParameter)
		line := []byte(`{"type":"ADDED","object":{"metadata":{"name":"a.example.com"},"versions":[]}}` + "\n")
		for err := error(nil); err == nil; {
			_, err = w.Write(line)
		}
	}))
	defer server.Close()
	source := sources.NewSource(sources.Config{
		BaseURL: server.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {},
		Limits: sources.Limits{GroupVersions: 10, Memory: 1 << 20, Document: 1 << 20, Group: 1 << 20, Elements: 100, Rate: 1, Burst: 1 << 20},
	})
	err := source.Follow(t.Context(), func() { t.Error("half of a state counts") })
	if !sources.IsTooLong(err) {
		t.Fatal(err)
	}
	last := time.Duration(0)
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 16 * time.Minute, 32 * time.Minute, time.Hour, time.Hour} {
		if last = afterStream(last, false, time.Second, err); last != want {
			t.Errorf("the pause is %v, want %v", last, want)
		}
	}
	if next := afterStream(last, true, streamLasts, errors.New("the server ended it")); next != streamRetry {
		t.Errorf("after a good stream, the pause is %v", next)
	}
}
