package routing

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"portico/discovery/sources"
)

// The pause doubles while streams fail or end early, up to streamRetryMax, and is short after
// a good one.
func TestAfterStream(t *testing.T) {
	t.Parallel()
	ended := errors.New("the server ended it")
	const ms = time.Millisecond
	for _, tc := range []struct {
		name   string
		lasted time.Duration
		err    error
		first  []time.Duration
		last   time.Duration
	}{
		{"a good stream", streamGood, ended, []time.Duration{20 * ms, 20 * ms}, 20 * ms},
		{"ends at once", ms, ended, []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamRetryMax},
		{"401", ms, refusal(t, http.StatusUnauthorized, ""), []time.Duration{20 * ms, 40 * ms, 80 * ms}, streamRetryMax},
		{"Retry-After", ms, refusal(t, http.StatusTooManyRequests, "30"), []time.Duration{30 * time.Second, 30 * time.Second}, 30 * time.Second},
		{"Retry-After while it starts", ms, refusal(t, http.StatusServiceUnavailable, "1"), []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}, streamRetryMax},
		{"Retry-After without bound", ms, refusal(t, http.StatusServiceUnavailable, "99999999999999999999"), []time.Duration{streamUnknown}, streamUnknown},
		{"invalid Retry-After", ms, refusal(t, http.StatusServiceUnavailable, "-5"), []time.Duration{20 * ms, 40 * ms}, streamRetryMax},
	} {
		var got []time.Duration
		for last := time.Duration(0); len(got) < 12; got = append(got, last) {
			last = afterStream(last, tc.lasted, tc.err)
		}
		if !slices.Equal(got[:len(tc.first)], tc.first) || got[11] != tc.last {
			t.Errorf("%s: the pauses are %v, want %v and in the end %v (%v)", tc.name, got, tc.first, tc.last, tc.err)
		}
		if next := afterStream(got[11], streamGood, ended); next != streamRetry {
			t.Errorf("%s: after a good stream, the pause is %v", tc.name, next)
		}
	}
}

// refusal returns the error of a stream that a server answers with the status code.
func refusal(t *testing.T, code int, retryAfter string) error {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(code)
	}))
	defer server.Close()
	s := sources.NewSource(sources.Config{Name: "test", BaseURL: server.URL, Transport: http.DefaultTransport, Identify: func(http.Header) {}})
	return s.Follow(t.Context(), func() {})
}

// refreshing is a source with an OpenAPI index that changes.
type refreshing struct{ *sources.Source }

func (refreshing) Check(context.Context) error                  { return nil }
func (refreshing) RefreshOpenAPI(context.Context) (bool, error) { return true, nil }

// A changed OpenAPI index wakes the controller although discovery is the same.
func TestChangedOpenAPIWakes(t *testing.T) {
	t.Parallel()
	s := newController(t)
	fakeBackend(t, s, "crd", refreshing{sources.NewSource(sources.Config{})})
	srv := s.servers[targetOfBackend("crd")]
	go s.followOpenAPI(t.Context(), srv)
	if err := s.Probe(t.Context(), srv); err != nil {
		t.Fatal(err)
	}
	<-s.wake.C()
}
