package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"portico/resource"
)

// openWatch is a watch that is open, and how it ended.
type openWatch struct {
	body io.ReadCloser
	done chan error
}

// watchers opens watches, which wait for something to read.
func watchers(t *testing.T, u *Upstream, n int, path ...string) []openWatch {
	t.Helper()
	out := make([]openWatch, n)
	ctx := resource.WithAction(t.Context(), &resource.Action{Verb: "watch", IsResource: true})
	for i := range out {
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://example.com"+strings.Join(append(path, "/watch")[:1], ""), nil)
		res, err := u.Long().RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		out[i] = openWatch{res.Body, make(chan error, 1)}
		go func() { _, err := io.Copy(io.Discard, res.Body); out[i].done <- err }()
	}
	return out
}

// ended counts those that have ended, all of them in order.
func ended(t *testing.T, list []openWatch) (n int) {
	t.Helper()
	for _, w := range list {
		select {
		case err := <-w.done:
			if err != nil {
				t.Errorf("a watch was cut: %v", err)
			}
			w.done <- err
			n++
		default:
		}
	}
	return n
}

// startWatched starts an endpoint whose watches last.
func startWatched(t *testing.T, network string) *node {
	return startNode(t, network, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/watch" {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

// Watches through an endpoint that stays go on, whatever becomes of the others,
// the policy and the trust.
func TestWatchesOfWhatStays(t *testing.T) {
	stays, goes := startWatched(t, "tls"), startWatched(t, "tls")
	p := turns()
	u := over(t, p, stays.endpoint())
	all := watchers(t, u, 3)
	send(t, u, short, "GET", "")
	e := u.endpoints[0]
	u.SetEndpoints([]Endpoint{stays.endpoint(), goes.endpoint()})
	weighty := stays.endpoint()
	weighty.Weight = 7
	u.SetEndpoints([]Endpoint{weighty, goes.endpoint()})
	u.SetEndpoints([]Endpoint{weighty})
	p.Idle++
	u.SetPolicy(p)
	if u.endpoints[0] != e || e.requests.Load() != 4 {
		t.Error("its counters are new")
	}
	u.SetTrust(Trust{Insecure: true, ServerName: "example.com"})
	if got := send(t, u, long, "GET", ""); got.code != 200 {
		t.Errorf("by the new trust: %+v", got)
	}
	u.SetTrust(Trust{ServerName: "example.com"}) // whom nobody vouches for
	if got := send(t, u, long, "GET", ""); got.err == nil {
		t.Error("a connection of the trust before is used")
	}
	if n := ended(t, all); n != 0 || e.active.Load() != 3 {
		t.Errorf("%d of 3 watches ended, %d are under way", n, e.active.Load())
	}
}

// Watches of an endpoint that is removed end in order and one after the other;
// what is no watch finishes. Their connections are closed then.
func TestRemovedEndpointDrains(t *testing.T) {
	for _, network := range []string{"tls", "unix"} {
		for _, closes := range []bool{false, true} {
			goes, other := startWatched(t, network), startWatched(t, network)
			u := over(t, turns(), goes.endpoint())
			all := watchers(t, u, 5)
			ctx, cancel := context.WithCancel(t.Context())
			req, _ := http.NewRequestWithContext(ctx, "GET", "https://example.com/watch", nil) // as of a log
			res, err := u.Long().RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			e := u.endpoints[0]
			if closes {
				u.Close()
			} else {
				u.SetEndpoints([]Endpoint{other.endpoint()})
			}
			if n := ended(t, all); n != 0 {
				t.Errorf("%s: %d of 5 were cut at once", network, n)
			}
			u.mu.Lock()
			u.drain(e, 3) // the last of the rounds there are
			u.mu.Unlock()
			eventually(t, "none ends", func() bool { return ended(t, all) > 0 })
			if n := ended(t, all); n == 5 {
				t.Errorf("%s: all end at once", network)
			}
			eventually(t, "not all end", func() bool { return ended(t, all) == 5 })
			if e.watches.count() != 0 || e.active.Load() != 1 {
				t.Errorf("%s: %d streams, %d under way", network, e.watches.count(), e.active.Load())
			}
			cancel()
			if _, err := io.ReadAll(res.Body); !errors.Is(err, context.Canceled) {
				t.Errorf("what is no watch was ended: %v", err)
			}
			eventually(t, "it is remembered", func() bool { u.mu.Lock(); defer u.mu.Unlock(); return len(u.removed) == 0 })
			select {
			case <-goes.ends:
			case <-time.After(20 * time.Second):
				t.Errorf("%s: its connection stays", network)
			}
		}
	}
}

// An endpoint that is set again while it drains has its watches and counters, and
// new connections.
func TestReturnWhileDraining(t *testing.T) {
	for _, network := range []string{"tls", "unix"} {
		n, other := startWatched(t, network), startWatched(t, network)
		u := over(t, turns(), n.endpoint())
		all := watchers(t, u, 3)
		e := u.endpoints[0]
		u.SetEndpoints([]Endpoint{other.endpoint()})
		send(t, u, short, "GET", "")
		u.SetEndpoints([]Endpoint{n.endpoint()})
		if u.endpoints[0] != e || e.draining != nil || len(u.removed) != 1 {
			t.Fatalf("%s: it is another one, or still drains", network)
		}
		for _, k := range []kind{short, long, long} {
			if got := send(t, u, k, "GET", ""); got.code != 200 {
				t.Errorf("%s: %+v", network, got)
			}
		}
		before := n.conns.Load()
		if send(t, u, short, "GET", ""); n.conns.Load() != before {
			t.Errorf("%s: connections are not kept", network)
		}
		time.Sleep(3 * drainEvery)
		if k := ended(t, all); k != 0 {
			t.Errorf("%s: %d watches ended", network, k)
		}
	}
}

// Watches of an endpoint that is given no weight move as soon as there is another
// that gets requests, and no sooner; those that are late follow. With a weight,
// they stay.
func TestWatchesOfNoWeight(t *testing.T) {
	late := make(chan struct{})
	goes := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			<-late
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	other := startWatched(t, "tls")
	list := []Endpoint{goes.endpoint(), other.endpoint()}
	u := over(t, turns(), list[0])
	all := watchers(t, u, 5)
	e := u.endpoints[0]
	drains := func() bool { u.mu.Lock(); defer u.mu.Unlock(); return e.draining != nil }
	list[0].Weight = 0
	u.SetEndpoints(list[:1])
	u.SetVerdict(list[0].URL, healthy)
	if drains() {
		t.Error("alone: its watches have no other place")
	}
	u.SetEndpoints(list)
	if !drains() {
		t.Error("beside another: they stay")
	}
	u.SetVerdict(list[1].URL, unhealthy)
	if drains() {
		t.Error("the other fell: they have no other place")
	}
	u.SetVerdict(list[1].URL, healthy)
	list[0].Weight = 1
	u.SetEndpoints(list)
	if drains() {
		t.Error("with a weight: they do not stay")
	}
	var began []openWatch
	list[1].Weight = 0 // so that it is here
	u.SetEndpoints(list)
	var started sync.WaitGroup
	started.Go(func() { began = watchers(t, u, 1, "/late") })
	eventually(t, "it does not arrive", func() bool { return e.active.Load() == 6 })
	list[0].Weight, list[1].Weight = 0, 1
	u.SetEndpoints(list)
	u.mu.Lock()
	u.drain(e, 3)
	u.mu.Unlock()
	eventually(t, "not all end", func() bool { return ended(t, all) == 5 && !drains() })
	close(late)
	started.Wait()
	eventually(t, "a late one stays", func() bool { return ended(t, began) == 1 || drains() })
	if got := send(t, u, long, "GET", ""); got.code != 200 || len(other.seen()) != 1 {
		t.Errorf("%+v", got)
	}
}

// Where every endpoint drains, the error says so, and not that there is none.
func TestAllDrainIsSaid(t *testing.T) {
	u := over(t, turns(), Endpoint{URL: "https://one", Network: "tcp", Address: "127.0.0.1:1"}, Endpoint{URL: "https://two", Network: "tcp", Address: "127.0.0.1:2"})
	if _, _, err := u.Explain(&http.Request{}); err == nil || !strings.Contains(err.Error(), "all of them have the weight 0") {
		t.Errorf("of two that drain: %v", err)
	}
	u.SetEndpoints(nil)
	if _, _, err := u.Explain(&http.Request{}); err == nil || !strings.Contains(err.Error(), "it has none") {
		t.Errorf("of none: %v", err)
	}
}

// What a check finds of a server that is let go of changes nothing: its watches end.
func TestVerdictAfterClose(t *testing.T) {
	inTime(t, turns(), 1, func(t *testing.T, u *Upstream) {
		e := u.endpoints[0]
		u.Close()
		u.SetVerdict(e.URL, unhealthy)
		u.mu.Lock()
		defer u.mu.Unlock()
		if !e.drains.Load() || e.draining == nil {
			t.Error("it does not drain any more")
		}
	})
}
