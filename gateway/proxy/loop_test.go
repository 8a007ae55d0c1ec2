package proxy

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"portico/gateway/upstream"
	"portico/resource/response"
)

// looped is the part of a gateway that concerns loops: it admits a request, and sends it to
// the next server.
type looped struct {
	*httptest.Server
	via      *upstream.Via
	up       *Upstream
	received atomic.Int32
}

// newLooped starts a gateway; frontProxies says whether its clients are front proxies.
func newLooped(t *testing.T, frontProxies bool) *looped {
	t.Helper()
	g := &looped{via: upstream.NewVia()}
	g.Server, _ = startTLS(t, func(w http.ResponseWriter, r *http.Request) {
		g.received.Add(1)
		if err := g.via.Admit(r.Header, func() bool { return frontProxies }); err != nil {
			response.WriteStatus(w, r, err)
			return
		}
		asAlice(along(routeTo(g.up)))(w, r)
	})
	return g
}

// sendsTo makes next the server of the gateway.
func (g *looped) sendsTo(t *testing.T, next *httptest.Server) {
	t.Helper()
	g.up = upstreamTo(t, trustOf(next), []string{next.Listener.Addr().String()}, func(c *upstream.Config) { c.Via = g.via })
}

// loopRequests are requests that are sent over different protocols, and their headers.
var loopRequests = map[string]http.Header{
	shortPath: nil,
	watchPath: nil,
	execPath:  {"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
	"/api/v1/namespaces/a/pods/b/log?follow=1": nil,
}

func (g *looped) get(t *testing.T, path string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, g.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header.Clone()
	}
	res, err := g.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	return res
}

// A request that returns to the gateway that sent it gets 508, over every protocol, at once or,
// if gateways remove each other's ids, after a bounded number of them.
func TestLoopEnds(t *testing.T) {
	t.Parallel()
	pair := func(frontProxies bool) *looped {
		first, second := newLooped(t, frontProxies), newLooped(t, frontProxies)
		first.sendsTo(t, second.Server)
		second.sendsTo(t, first.Server)
		return first
	}
	alone, untrusting := newLooped(t, true), newLooped(t, false)
	alone.sendsTo(t, alone.Server)
	untrusting.sendsTo(t, untrusting.Server)
	for name, c := range map[string]struct {
		gateway *looped
		most    int32 // requests to it
	}{
		"one gateway": {alone, 2}, "one that removes ids": {untrusting, 2}, "two gateways": {pair(true), 2}, "two that remove ids": {pair(false), 5},
	} {
		for path, header := range loopRequests {
			c.gateway.received.Store(0)
			res := c.gateway.get(t, path, header)
			if s := statusOf(t, res); res.StatusCode != 508 || s.Reason != "LoopDetected" || c.most == 2 && !strings.Contains(s.Message, "returned to this gateway") {
				t.Errorf("%s: %s: %d %q %q", name, path, res.StatusCode, s.Reason, s.Message)
			}
			if n := c.gateway.received.Load(); n > c.most {
				t.Errorf("%s: %s: %d requests", name, path, n)
			}
		}
	}
}

// A gateway behind a gateway serves, whether or not it trusts the first as a front
// proxy; the server gets the ids of both.
func TestGatewayBehindGateway(t *testing.T) {
	t.Parallel()
	for frontProxies, entries := range map[bool]int{true: 0, false: 1} {
		var via atomic.Value
		server, _ := startTLS(t, func(_ http.ResponseWriter, r *http.Request) { via.Store(r.Header.Get(upstream.HeaderVia)) })
		first, second := newLooped(t, true), newLooped(t, frontProxies)
		first.sendsTo(t, second.Server)
		second.sendsTo(t, server)
		for _, path := range []string{shortPath, watchPath} {
			if res := first.get(t, path, nil); res.StatusCode != 200 {
				t.Errorf("%s: %d", path, res.StatusCode)
			}
			list := strings.Split(via.Load().(string), ", ")
			if len(list) != 2 || strings.Count(via.Load().(string), "-") != entries {
				t.Errorf("%s: the server sees %q", path, list)
			}
		}
	}
}

// A check that leads back to the gateway fails.
func TestCheckOfOneself(t *testing.T) {
	t.Parallel()
	g := newLooped(t, true)
	g.sendsTo(t, g.Server)
	var answer *upstream.AnswerError
	err := g.up.Probe(t.Context(), "https://"+g.Listener.Addr().String(), "/healthz", func(http.Header) {})
	if !errors.As(err, &answer) || answer.Code != 508 || !strings.Contains(err.Error(), "leads back to this gateway") {
		t.Errorf("a check: %v", err)
	}
	pinned := g.up.Pinned()
	for name, transport := range map[string]http.RoundTripper{"discovery": pinned, "a stream": pinned.Streams(), "the gateway's own": g.up} {
		req, _ := http.NewRequest(http.MethodGet, g.URL+"/apis", nil)
		res, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.Body.Close(); res.StatusCode != 508 {
			t.Errorf("%s: %d", name, res.StatusCode)
		}
	}
}
