package upstream

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"portico/internal/testing/await"
)

// stream begins an answer and keeps it open.
func stream(w http.ResponseWriter, r *http.Request) {
	if r.Method == "PRI" { // by which HTTP/2 begins; net/http leaves it to the handler
		http.Error(w, "no HTTP/2 here", http.StatusBadRequest)
		return
	}
	fmt.Fprintln(w, r.Proto)
	if r.Header.Get("X-Fill") != "" {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
	}
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// openStream begins a long-running request and returns the first line of its answer.
func openStream(t *testing.T, u *Upstream, header string) (proto string, res *http.Response) {
	t.Helper()
	req := newRequest(t.Context(), "GET", watchPath, nil)
	if header != "" {
		req.Header.Set(header, "x")
	}
	res, err := u.Long().RoundTrip(req)
	if err != nil {
		t.Error(err)
		return "", nil
	}
	t.Cleanup(func() { res.Body.Close() })
	line := make([]byte, len("HTTP/2.0"))
	if _, err := io.ReadFull(res.Body, line); err != nil {
		t.Error(err)
	}
	return string(line), res
}

// overSocket returns an Upstream of a node that may speak HTTP/2 without TLS.
func overSocket(t *testing.T, n *node) *Upstream {
	u := over(t, turns(), n.endpoint())
	u.SetTrust(Trust{Plain: true, PriorKnowledge: true})
	return u
}

// Watches that start together share connections from the first. No connection gets more
// than its server permits: it would refuse them, and retries take of the budget, of which
// there is none here. A watch that is not read does not block the others.
func TestWatchesShareConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		network          string
		watches, streams int
		header           string
	}{{"tls", 300, 100, ""}, {"tls", 60, 2, ""}, {"h2c", 100, 100, "X-Fill"}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			n := startNode(t, c.network, stream, func(s *http.Server) { s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: c.streams} })
			policy := turns()
			policy.Retries.BudgetPercent, policy.Retries.MinPerSecond = 0, 0
			u := over(t, policy, n.endpoint())
			if c.network == "h2c" {
				u.SetTrust(Trust{Plain: true, PriorKnowledge: true})
			}
			var all sync.WaitGroup
			for range c.watches {
				all.Go(func() {
					if proto, _ := openStream(t, u, c.header); proto != "HTTP/2.0" {
						t.Errorf("got the protocol %q, want HTTP/2.0", proto)
					}
				})
			}
			all.Wait()
			if n := int(n.conns.Load()); n < c.watches/c.streams || n > 5*c.watches/c.streams {
				t.Errorf("got %d connections for %d watches, %d on each", n, c.watches, c.streams)
			}
		})
	}
}

// A server on a socket without HTTP/2 is tried once and gets HTTP/1.1, also if it closes
// the connection instead of an answer.
func TestSocketServerWithoutHTTP2(t *testing.T) {
	t.Parallel()
	hangUp := func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PRI" {
			panic(http.ErrAbortHandler)
		}
		stream(w, r)
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		conns int32
	}{"an error": {stream, 4}, "closes": {hangUp, 6}} {
		n := startNode(t, "unix", c.serve)
		u := overSocket(t, n)
		for range 3 {
			if proto, _ := openStream(t, u, ""); proto != "HTTP/1.1" {
				t.Errorf("%s: got the protocol %q, want HTTP/1.1", name, proto)
			}
		}
		if got := n.conns.Load(); got > c.conns {
			t.Errorf("%s: got %d connections for 3 watches, want at most %d", name, got, c.conns)
		}
	}
}

// Without a configured server name, the certificate must be valid for the host of the
// URL.
func TestServerNameOfURL(t *testing.T) {
	t.Parallel()
	n := startNode(t, "tls", nil)
	for host, want := range map[string]bool{"example.com": true, "elsewhere.test": false} {
		e := n.endpoint()
		e.Base = mustParse("https://" + host + ":443")
		u := over(t, turns(), e)
		u.SetTrust(Trust{Roots: u.trust.Roots})
		for _, k := range []kind{short, long} { // over HTTP/1.1 and HTTP/2
			if got := send(t, u, k, "GET", ""); (got.err == nil) != want {
				t.Errorf("%s: got %v, want an answer: %v", host, got.err, want)
			}
		}
	}
}

// A connection takes new requests until it reaches its age; requests in progress on it
// finish, and then it is closed.
func TestConnectionAge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		network string
		k       kind
	}{{"tls", long}, {"unix", short}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			end := make(chan struct{})
			n := startNode(t, c.network, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.RawQuery != "" {
					_ = http.NewResponseController(w).Flush()
					<-end
					fmt.Fprint(w, "whole")
				}
			})
			p := turns()
			p.Timeouts.MaxConnectionAge = time.Second
			u := over(t, p, n.endpoint())
			made := func() int {
				before := n.conns.Load()
				if got := send(t, u, c.k, "GET", ""); got.err != nil {
					t.Fatal(got.err)
				}
				return int(n.conns.Load() - before)
			}
			// A request that follows another at once may find its connection not idle yet.
			await.Until(t, "two requests share a connection", func() bool { return made() == 0 })
			watch, err := u.send(newRequest(t.Context(), "GET", watchPath, nil), c.k)
			if err != nil {
				t.Fatal(err)
			}
			if c.k == short { // over HTTP/1.1 it has the connection for itself
				made()
			}
			await.Until(t, "the connection takes requests beyond its age", func() bool { return made() > 0 })
			close(end)
			if body, err := io.ReadAll(watch.Body); err != nil || string(body) != "whole" {
				t.Errorf("the request in progress: got %q, %v", body, err)
			}
			await.Until(t, "the old connection is closed", func() bool {
				made() // An idle connection is closed when a request finds it too old.
				select {
				case <-n.ends:
					return true
				default:
					return false
				}
			})
		})
	}
}

// The header of an answer may have up to 1 MiB, over every protocol.
func TestHeaderBound(t *testing.T) {
	t.Parallel()
	n := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
		lines, _ := strconv.Atoi(r.Header.Get("X-Lines"))
		for i := range lines {
			w.Header().Set("X-Line-"+strconv.Itoa(i), strings.Repeat("x", 32<<10))
		}
	})
	u := over(t, turns(), n.endpoint())
	const lines = 1 << 20 >> 15 // 1 MiB
	for name, k := range map[string]kind{"HTTP/1.1": short, "HTTP/2": long, "upgrade": upgrade} {
		if got := send(t, u, k, "GET", "", "X-Lines", strconv.Itoa(lines-1)); got.err != nil || got.code != 200 {
			t.Errorf("%s, below the bound: got %d, %v", name, got.code, got.err)
		}
		if got := send(t, u, k, "GET", "", "X-Lines", strconv.Itoa(lines+1)); got.err == nil {
			t.Errorf("%s, above the bound: got %d, want an error", name, got.code)
		}
	}
}
