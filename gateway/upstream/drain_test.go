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

// Watches through an endpoint that stays continue when the other endpoints, the policy
// or the trust change.
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
	p.Timeouts.Idle++
	u.SetPolicy(p)
	if u.endpoints[0] != e {
		t.Error("the endpoint is new")
	}
	u.SetTrust(Trust{Insecure: true, ServerName: "example.com"})
	if got := send(t, u, long, "GET", ""); got.code != 200 {
		t.Errorf("by the new trust: %+v", got)
	}
	u.SetTrust(Trust{ServerName: "example.com"}) // no root verifies its certificate
	if got := send(t, u, long, "GET", ""); got.err == nil {
		t.Error("a connection of the trust before is used")
	}
	if n := ended(t, all); n != 0 || e.active.Load() != 3 {
		t.Errorf("%d of 3 watches ended, %d are in progress", n, e.active.Load())
	}
}

// Watches of an endpoint that is removed end one by one, complete; other requests
// finish. Its connections are closed then.
func TestRemovedEndpointDrains(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tls", "unix"} {
		for _, closes := range []bool{false, true} {
			removed, other := startWatched(t, network), startWatched(t, network)
			u := over(t, turns(), removed.endpoint())
			u.drainWithin = 500 * time.Millisecond
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
				u.SetVerdict(e.URL, unhealthy)
			} else {
				u.SetEndpoints([]Endpoint{other.endpoint()})
			}
			eventually(t, "none ends", func() bool { return ended(t, all) > 0 })
			if n := ended(t, all); n == 5 {
				t.Errorf("%s: all end at once", network)
			}
			eventually(t, "not all end", func() bool { return ended(t, all) == 5 })
			if len(e.watches.all()) != 0 || e.active.Load() != 1 {
				t.Errorf("%s: %d watches, %d in progress", network, len(e.watches.all()), e.active.Load())
			}
			cancel()
			if _, err := io.ReadAll(res.Body); !errors.Is(err, context.Canceled) {
				t.Errorf("what is no watch was ended: %v", err)
			}
			select {
			case <-removed.ends:
			case <-time.After(20 * time.Second):
				t.Errorf("%s: its connection stays", network)
			}
		}
	}
}

// Watches of an endpoint with the weight 0 end if another one gets requests, also those
// that begin late. Otherwise, and with a weight again, they stay.
func TestWatchesOfNoWeight(t *testing.T) {
	t.Parallel()
	late := make(chan struct{})
	drained := startNode(t, "tls", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/late" {
			<-late
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	other := startWatched(t, "tls")
	list := []Endpoint{drained.endpoint(), other.endpoint()}
	u := over(t, turns(), list[0])
	all := watchers(t, u, 3)
	e := u.endpoints[0]
	drains := e.draining.Load
	list[0].Weight = 0
	u.SetEndpoints(list[:1])
	u.SetVerdict(list[0].URL, healthy)
	if drains() {
		t.Error("alone, its watches end")
	}
	u.SetEndpoints(list)
	if !drains() {
		t.Error("beside another, they stay")
	}
	u.SetVerdict(list[1].URL, unhealthy)
	if drains() {
		t.Error("beside one that fails its checks, they end")
	}
	u.SetVerdict(list[1].URL, healthy)
	list[0].Weight = 1
	u.SetEndpoints(list)
	if drains() {
		t.Error("with a weight, they end")
	}
	var began []openWatch
	list[1].Weight = 0 // so that the next is sent to the first
	u.SetEndpoints(list)
	var started sync.WaitGroup
	started.Go(func() { began = watchers(t, u, 1, "/late") })
	eventually(t, "it does not arrive", func() bool { return e.active.Load() == 4 })
	list[0].Weight, list[1].Weight = 0, 1
	u.drainWithin = 100 * time.Millisecond
	u.SetEndpoints(list)
	eventually(t, "not all end", func() bool { return ended(t, all) == 3 })
	close(late)
	started.Wait()
	eventually(t, "a late one stays", func() bool { return ended(t, began) == 1 })
	if got := send(t, u, long, "GET", ""); got.code != 200 || len(other.seen()) != 1 {
		t.Errorf("%+v", got)
	}
}

// The error of a server all of whose endpoints drain differs from that of one without
// endpoints.
func TestErrorWithoutEndpoints(t *testing.T) {
	u := over(t, turns(), Endpoint{URL: "https://one", Network: "tcp", Address: "127.0.0.1:1"}, Endpoint{URL: "https://two", Network: "tcp", Address: "127.0.0.1:2"})
	if _, _, err := u.Explain(&http.Request{}); err == nil || !strings.Contains(err.Error(), "all of them have the weight 0") {
		t.Errorf("of two that drain: %v", err)
	}
	u.SetEndpoints(nil)
	if _, _, err := u.Explain(&http.Request{}); err == nil || !strings.Contains(err.Error(), "it has none") {
		t.Errorf("of none: %v", err)
	}
}
