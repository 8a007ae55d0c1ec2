package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// asks sends a request and returns the name in the answer.
func asks(t *testing.T, pinned http.RoundTripper) string {
	t.Helper()
	res, err := pinned.RoundTrip(newRequest(t.Context(), "GET", "/apis", nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("got %d, %v", res.StatusCode, err)
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

// Pinned sends requests to one endpoint, the same first one in every gateway, until that
// fails its checks, answers 503 or refuses connections, and does not go back.
func TestPinned(t *testing.T) {
	t.Parallel()
	var list []Endpoint
	nodes, unwell := map[string]*node{}, map[string]*atomic.Bool{}
	for range 3 {
		var n *node
		n = startNode(t, "tls", func(w http.ResponseWriter, _ *http.Request) {
			if unwell[n.endpoint().URL].Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_, _ = io.WriteString(w, n.endpoint().URL)
		})
		e := n.endpoint()
		nodes[e.URL], unwell[e.URL], list = n, new(atomic.Bool), append(list, e)
	}
	policy := turns()
	policy.Outlier.ConsecutiveErrors, policy.Outlier.ConsecutiveLocalErrors = 0, 0
	u := over(t, policy, list...)
	pinned := u.Pinned()
	at := stay(t, pinned)
	if other := stay(t, over(t, policy, list[2], list[1], list[0]).Pinned()); other != at {
		t.Errorf("one gateway asks %s, another %s", at, other)
	}
	for _, c := range []struct {
		what        string
		fails, well func(url string)
	}{
		{"fails its checks", func(url string) { u.SetVerdict(url, unhealthy) }, func(url string) { u.SetVerdict(url, healthy) }},
		{"answers 503", func(url string) { unwell[url].Store(true) }, func(url string) { unwell[url].Store(false) }},
		{"refuses connections", func(url string) { nodes[url].Listener.Close(); nodes[url].CloseClientConnections() }, func(string) {}},
	} {
		c.fails(at)
		next := stay(t, pinned)
		c.well(at)
		if back := stay(t, pinned); next == at || back != next {
			t.Errorf("%s: after %s got %s, then %s", c.what, at, next, back)
		}
		at = next
	}
}

// Without retries, a request fails with its endpoint, and the next is sent to another.
// The only endpoint stays the one when others are added.
func TestPinnedMovesOn(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	for name, fails := range map[string]http.HandlerFunc{
		"an error":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"unwell":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"no answer": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half of one": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9")
			w.WriteHeader(500)
		},
	} {
		var well atomic.Bool
		n := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
			if !well.Load() {
				fails(w, r)
			}
		})
		u := over(t, turns(), n.endpoint(), closedEndpoint)
		u.SetVerdict(closedEndpoint.URL, unhealthy)
		client, e := &http.Client{Transport: u.Pinned()}, u.endpoints[0]
		get := func() {
			if res, err := client.Get("https://example.com/apis"); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}
		for range 10 {
			get()
		}
		if n := e.errors.Load(); n < 10 || e.ejections.Load() != 0 {
			t.Errorf("%s: got %d errors and %d ejections, want at least 10 and none", name, n, e.ejections.Load())
		}
		for range 2 {
			e.health.Answers.Failed(0)
			e.health.Connections.Failed(0)
		}
		well.Store(true)
		get()
		if !e.health.Answers.Failed(3) || !e.health.Connections.Failed(3) {
			t.Errorf("%s: a good answer resets the failures", name)
		}
	}
}

// closedEndpoint is an endpoint without a server.
var closedEndpoint = Endpoint{URL: "https://absent", Network: "tcp", Address: "127.0.0.1:1", Weight: 1}

// startNamed starts an endpoint that writes its name, and keeps the answer open for as
// long as the request lasts.
func startNamed(t *testing.T, network, name string) *node {
	return startNode(t, network, func(w http.ResponseWriter, r *http.Request) {
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
	res, err := pinned.RoundTrip(newRequest(t.Context(), "GET", "/watch", nil))
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

// A pinned stream ends as soon as requests go to other endpoints only; the next stream
// and the next request are sent to one of those.
func TestPinnedStreamMovesOn(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]func(u *Upstream, first, second *node){
		"removed": func(u *Upstream, _, second *node) { u.SetEndpoints([]Endpoint{second.endpoint()}) },
		"no weight": func(u *Upstream, first, second *node) {
			drained := first.endpoint()
			drained.Weight = 0
			u.SetEndpoints([]Endpoint{drained, second.endpoint()})
		},
		"checks fail": func(u *Upstream, first, _ *node) { u.SetVerdict(first.endpoint().URL, unhealthy) },
		"ejected":     func(u *Upstream, _, _ *node) { u.eject(u.endpoints[0], false, errBroken) },
		"checks failed before, alone": func(u *Upstream, first, second *node) {
			u.SetEndpoints([]Endpoint{first.endpoint()})
			u.SetVerdict(first.endpoint().URL, unhealthy)
			if u.find(first.endpoint().URL).active.Load() != 1 {
				t.Error("the stream of the only endpoint ended")
			}
			u.SetEndpoints([]Endpoint{first.endpoint(), second.endpoint()})
		},
		"replaced, after it was all there was": func(u *Upstream, _, second *node) {
			u.SetEndpoints(nil)
			u.SetEndpoints([]Endpoint{second.endpoint()})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			first, second := startNamed(t, "tls", "first"), startNamed(t, "tls", "second")
			u := over(t, turns(), first.endpoint())
			pinned := u.Pinned()
			name, end := opens(t, pinned.Streams())
			u.SetEndpoints([]Endpoint{first.endpoint(), second.endpoint()})
			if again := asks(t, pinned); name != "first" || again != "first\n" {
				t.Fatalf("%q streams and %q answers", name, again)
			}
			c(u, first, second)
			if err := receive(t, end, "the stream stays"); err != nil {
				t.Errorf("the stream was cut: %v", err)
			}
			if name, _ := opens(t, pinned.Streams()); name != "second" {
				t.Errorf("%s: the next stream is of the %s", what, name)
			}
			if name := asks(t, pinned); name != "second\n" {
				t.Errorf("%s: the %s answers", what, name)
			}
		})
	}
}

// A pinned stream that begins at an endpoint which was removed meanwhile ends as well.
func TestPinnedStreamThatIsLate(t *testing.T) {
	t.Parallel()
	begin, asked := make(chan struct{}), make(chan struct{}, 1)
	first := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-begin
		fmt.Fprintln(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	second := startNamed(t, "tls", "second")
	u := over(t, turns(), first.endpoint())
	pinned := u.Pinned()
	ended := make(chan error, 1)
	go func() {
		res, err := pinned.Streams().RoundTrip(newRequest(t.Context(), "GET", "/watch", nil))
		if err == nil {
			_, err = io.Copy(io.Discard, res.Body)
			res.Body.Close()
		}
		ended <- err
	}()
	<-asked
	u.SetEndpoints([]Endpoint{second.endpoint()})
	close(begin)
	if err := receive(t, ended, "the stream stays"); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
}

// Checks and reads that fail, however many, leave no connection behind.
func TestFailedChecksLeaveNoConnections(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tls", "tls1", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, network, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusBadGateway)
				_, _ = io.WriteString(w, "bad gateway")
				_ = http.NewResponseController(w).Flush() // the length is not known
			})
			u := over(t, turns(), n.endpoint())
			for range 20 {
				if err := u.Probe(t.Context(), n.endpoint().URL, "/readyz", func(http.Header) {}); err == nil {
					t.Fatal("502 passes")
				}
				res, err := u.Pinned().RoundTrip(newRequest(t.Context(), "GET", "/apis", nil))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			made := n.conns.Load()
			if made > 2 {
				t.Errorf("%d connections for 40 requests", made)
			}
			u.Close()
			for range made {
				select {
				case <-n.ends:
				case <-time.After(await.Patience()):
					t.Fatalf("of %d connections not all are closed", made)
				}
			}
		})
	}
}

// A failed check does not wait for a body that does not end, which would make it a check that times out.
func TestFailedChecksDoNotWaitForTheBody(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tls", "tls1", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			n := startNode(t, network, func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusServiceUnavailable)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
			u := over(t, turns(), n.endpoint())
			var answer *AnswerError
			if err := u.Probe(t.Context(), n.endpoint().URL, "/readyz", func(http.Header) {}); !errors.As(err, &answer) {
				t.Errorf("got %v", err)
			}
		})
	}
}
