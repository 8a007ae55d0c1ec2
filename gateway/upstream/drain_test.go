package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/await"
	"portico/resource"
)

// watchers opens watches and returns the number of those that have ended with io.EOF.
func watchers(t *testing.T, u *Upstream, n int, path string) *atomic.Int32 {
	t.Helper()
	ended := new(atomic.Int32)
	ctx := resource.WithAction(t.Context(), &resource.Action{Verb: "watch", IsResource: true})
	for range n {
		res, err := u.Long().RoundTrip(newRequest(ctx, "GET", path, nil))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { res.Body.Close() })
		go func() {
			if _, err := io.Copy(io.Discard, res.Body); err == nil {
				ended.Add(1)
			}
		}()
	}
	return ended
}

// Watches through an endpoint that stays continue when the other endpoints, the policy
// or the trust change.
func TestWatchesOfWhatStays(t *testing.T) {
	t.Parallel()
	stays, goes := startNamed(t, "tls", "stays"), startNamed(t, "tls", "goes")
	p := turns()
	u := over(t, p, stays.endpoint())
	watchers(t, u, 3, "/watch")
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
	if n := e.active.Load(); n != 3 {
		t.Errorf("%d of 3 watches are in progress", n)
	}
}

// Watches of an endpoint that is removed end one by one, complete; other requests
// finish. Its connections are closed then.
func TestRemovedEndpointDrains(t *testing.T) {
	t.Parallel()
	for network, remove := range map[string]func(u *Upstream, other Endpoint){
		"tls":  func(u *Upstream, other Endpoint) { u.SetEndpoints([]Endpoint{other}) },
		"unix": func(u *Upstream, _ Endpoint) { u.Close() },
	} {
		removed, other := startNamed(t, network, "removed"), startNamed(t, network, "other")
		u := over(t, turns(), removed.endpoint())
		u.drainWithin = 500 * time.Millisecond
		ended := watchers(t, u, 5, "/watch")
		ctx, cancel := context.WithCancel(t.Context())
		log, err := u.Long().RoundTrip(newRequest(ctx, "GET", "/watch", nil))
		if err != nil {
			t.Fatal(err)
		}
		e := u.endpoints[0]
		remove(u, other.endpoint())
		await.Until(t, "no watch ends", func() bool { return ended.Load() > 0 })
		if ended.Load() == 5 {
			t.Errorf("%s: all watches end at once", network)
		}
		await.Until(t, "not all watches end", func() bool { return ended.Load() == 5 && e.active.Load() == 1 })
		cancel()
		if _, err := io.ReadAll(log.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: a request that is no watch ended: %v", network, err)
		}
		receive(t, removed.ends, network+": its connection stays open")
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
	other := startNamed(t, "tls", "other")
	list := []Endpoint{drained.endpoint(), other.endpoint()}
	u := over(t, turns(), list[0])
	all := watchers(t, u, 3, "/watch")
	e := u.endpoints[0]
	weights := func(list []Endpoint, weights ...int) {
		for i, w := range weights {
			list[i].Weight = w
		}
		u.SetEndpoints(list)
	}
	for _, step := range []struct {
		when   string
		change func()
		drains bool
	}{
		{"alone", func() { weights(list[:1], 0) }, false},
		{"beside another", func() { weights(list, 0, 1) }, true},
		{"beside one that fails its checks", func() { u.SetVerdict(list[1].URL, unhealthy) }, false},
		{"with a weight", func() { u.SetVerdict(list[1].URL, healthy); weights(list, 1, 1) }, false},
		{"beside another without a weight", func() { weights(list, 1, 0) }, false},
	} {
		if step.change(); e.draining.Load() != step.drains {
			t.Errorf("%s: its watches drain: %v, want %v", step.when, !step.drains, step.drains)
		}
	}
	var began *atomic.Int32
	var started sync.WaitGroup
	started.Go(func() { began = watchers(t, u, 1, "/late") })
	await.Until(t, "the late watch does not arrive", func() bool { return e.active.Load() == 4 })
	u.drainWithin = 50 * time.Millisecond
	weights(list, 0, 1)
	await.Until(t, "not all watches end", func() bool { return all.Load() == 3 })
	close(late)
	started.Wait()
	await.Until(t, "a late watch stays", func() bool { return began.Load() == 1 })
	if got := send(t, u, long, "GET", ""); got.code != 200 || len(other.seen()) != 1 {
		t.Errorf("the next request: got %+v", got)
	}
}

// The error of a server that drains all its endpoints differs from that of one without
// endpoints.
func TestErrorWithoutEndpoints(t *testing.T) {
	t.Parallel()
	u := over(t, turns(), Endpoint{URL: "https://one", Network: "tcp", Address: "127.0.0.1:1"}, Endpoint{URL: "https://two", Network: "tcp", Address: "127.0.0.1:2"})
	if _, _, err := u.Explain(&http.Request{}); err == nil || !strings.Contains(err.Error(), "all of them have the weight 0") {
		t.Errorf("of two that drain: %v", err)
	}
	u.SetEndpoints(nil)
	if _, _, err := u.Explain(&http.Request{}); err == nil || !strings.Contains(err.Error(), "it has none") {
		t.Errorf("of none: %v", err)
	}
}
