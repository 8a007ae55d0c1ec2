package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"portico/apiservice/availability"
)

// startNamed starts an endpoint that writes its name, and keeps the answer open for as
// long as the request lasts.
func startNamed(t *testing.T, name string) *node {
	return startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, name)
		if r.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
}

// opens opens a stream and returns the name of the endpoint, and the end of the stream.
func opens(t *testing.T, pinned http.RoundTripper) (name string, end <-chan error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/watch", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := pinned.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	if !lines.Scan() {
		t.Fatalf("nothing was said: %v", lines.Err())
	}
	done := make(chan error, 1)
	go func() {
		lines.Scan()
		done <- lines.Err()
	}()
	return lines.Text(), done
}

func within20(t *testing.T, what string, end <-chan error) {
	t.Helper()
	select {
	case err := <-end:
		if err != nil {
			t.Errorf("%s: it was cut: %v", what, err)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("%s: the stream stays", what)
	}
}

// A pinned stream ends as soon as requests go to other endpoints only; the next stream
// and the next request are sent to one of those.
func TestPinnedStreamMovesOn(t *testing.T) {
	gone := errors.New("no longer ready")
	for what, c := range map[string]func(u *Upstream, first, second *node){
		"removed": func(u *Upstream, _, second *node) { u.SetEndpoints([]Endpoint{second.endpoint()}) },
		"no weight": func(u *Upstream, first, second *node) {
			drained := first.endpoint()
			drained.Weight = 0
			u.SetEndpoints([]Endpoint{drained, second.endpoint()})
		},
		"checks fail": func(u *Upstream, first, _ *node) {
			u.SetVerdict(first.endpoint().URL, availability.Verdict{Known: true, Err: gone})
		},
		"ejected": func(u *Upstream, first, _ *node) {
			u.mu.Lock()
			e := u.find(first.endpoint().URL)
			u.mu.Unlock()
			u.eject(e, false, gone)
		},
		"replaced, after it was all there was": func(u *Upstream, _, second *node) {
			u.SetEndpoints(nil)
			u.SetEndpoints([]Endpoint{second.endpoint()})
		},
	} {
		t.Run(what, func(t *testing.T) {
			first, second := startNamed(t, "first"), startNamed(t, "second")
			u := over(t, turns(), first.endpoint())
			pinned := u.Pinned()
			name, end := opens(t, pinned.Streams())
			u.SetEndpoints([]Endpoint{first.endpoint(), second.endpoint()})
			if again := asks(t, pinned); name != "first" || again != "first\n" {
				t.Fatalf("%q streams and %q answers", name, again)
			}
			select {
			case err := <-end:
				t.Fatalf("it ended because another came: %v", err)
			case <-time.After(10 * time.Millisecond):
			}
			c(u, first, second)
			within20(t, what, end)
			if name, _ := opens(t, pinned.Streams()); name != "second" {
				t.Errorf("%s: the next stream is of the %s", what, name)
			}
			if name := asks(t, pinned); name != "second\n" {
				t.Errorf("%s: the %s answers", what, name)
			}
		})
	}
}

// Without another endpoint a pinned stream lasts, although its own fails its checks.
func TestPinnedStreamOfTheOnlyOne(t *testing.T) {
	first, second := startNamed(t, "first"), startNamed(t, "second")
	u := over(t, turns(), first.endpoint())
	pinned := u.Pinned()
	_, end := opens(t, pinned.Streams())
	bad := availability.Verdict{Known: true, Err: errors.New("not ready")}
	u.SetVerdict(first.endpoint().URL, bad)
	select {
	case err := <-end:
		t.Fatalf("it ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	u.SetEndpoints([]Endpoint{first.endpoint(), second.endpoint()})
	within20(t, "another came", end)
}

// A pinned stream that begins at an endpoint which was removed meanwhile ends as well.
func TestPinnedStreamThatIsLate(t *testing.T) {
	begin, asked := make(chan struct{}), make(chan struct{}, 1)
	first := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-begin
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	second := startNamed(t, "second")
	u := over(t, turns(), first.endpoint())
	pinned := u.Pinned()
	ended := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/watch", nil)
		res, err := pinned.Streams().RoundTrip(req)
		if err == nil {
			for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			}
			res.Body.Close()
		}
		ended <- err
	}()
	<-asked
	u.SetEndpoints([]Endpoint{second.endpoint()})
	close(begin)
	within20(t, "a late one", ended)
}
