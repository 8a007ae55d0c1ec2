package upstream

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"portico/apiservice/backend"
)

// A connection takes new requests for a time only; what is under way on it goes
// on, and it ends with that.
func TestConnectionAge(t *testing.T) {
	for _, c := range []struct {
		network string
		k       kind
	}{{"tls", long}, {"tls", short}, {"unix", short}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			end := make(chan struct{})
			n := startNode(t, c.network, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/watch" {
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
			if made() != 1 || made() != 0 {
				t.Fatal("the first two requests do not share a connection")
			}
			if c := u.Status().Endpoints[0].Connections; c.Idle+c.Shared != 1 || time.Since(c.Oldest) > 20*time.Second {
				t.Errorf("%+v", c)
			}
			req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/watch", nil)
			watch, err := u.send(req, c.k)
			if err != nil {
				t.Fatal(err)
			}
			if c.k == short { // by HTTP/1.1 it has the connection for itself
				made()
			}
			deadline := time.Now().Add(20 * time.Second)
			for made() == 0 {
				if time.Now().After(deadline) {
					t.Fatal("the connection is used for ever")
				}
				time.Sleep(10 * time.Millisecond)
			}
			close(end)
			if body, err := io.ReadAll(watch.Body); err != nil || string(body) != "whole" {
				t.Errorf("what was under way: %q %v", body, err)
			}
			select {
			case <-n.ends:
			case <-time.After(20 * time.Second):
				t.Error("the connection before is still there")
			}
		})
	}
}

// Connections that carry large bodies have the same age.
func TestConnectionAgeOfLargeBodies(t *testing.T) {
	n := startNode(t, "unix", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	p := turns()
	p.Timeouts.MaxConnectionAge = time.Second
	u := over(t, p, n.endpoint())
	large := strings.Repeat("x", 128<<10)
	deadline := time.Now().Add(20 * time.Second)
	for {
		if got := send(t, u, short, "POST", large); got.err != nil || got.code != 200 {
			t.Fatal(got.code, got.err)
		}
		select {
		case <-n.ends:
			return
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatal("the connection is used for ever")
		}
	}
}

// An endpoint that comes back gets new requests and new watches, although all
// connections there are lead to the other; the watches there stay.
func TestReturnedEndpointIsUsed(t *testing.T) {
	asked := make(chan int, 1000)
	end := make(chan struct{})
	var nodes []*node
	for i := range 2 {
		nodes = append(nodes, startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
			asked <- i
			if r.URL.Path == "/watch" {
				_ = http.NewResponseController(w).Flush()
				select {
				case <-end:
				case <-r.Context().Done():
				}
			}
		}))
	}
	defer close(end)
	p := NewPolicy(&backend.Spec{})
	p.Timeouts.Connect, p.SlowStart.Window = 20*time.Second, 200*time.Millisecond
	u := over(t, p, nodes[0].endpoint(), nodes[1].endpoint())
	watch := func() int {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "https://example.com/watch", nil)
		res, err := u.Long().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		return <-asked
	}
	u.SetVerdict(nodes[1].endpoint().URL, unhealthy)
	for range 20 {
		if watch() != 0 {
			t.Fatal("it fails its checks")
		}
	}
	u.SetVerdict(nodes[1].endpoint().URL, healthy)
	for deadline := time.Now().Add(20 * time.Second); shareOf(t, u, 1) < 50; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("its share does not grow")
		}
	}
	back := 0
	for range 10 {
		back += watch()
	}
	if back != 10 {
		t.Errorf("it got %d of 10 watches while the other has 20", back)
	}
	back = 0
	for range 200 {
		if got := send(t, u, short, "GET", ""); got.err != nil {
			t.Fatal(got.err)
		}
		back += <-asked
	}
	if back < 60 || back > 140 {
		t.Errorf("it got %d of 200 requests", back)
	}
	if s := u.Status().Endpoints; s[0].Active != 20 || s[1].Active != 10 {
		t.Errorf("%d and %d watches are open", s[0].Active, s[1].Active)
	}
}
