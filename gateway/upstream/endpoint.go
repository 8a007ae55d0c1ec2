package upstream

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"portico/apiservice/backend"
	"portico/gateway/upstream/balance"
	"portico/gateway/upstream/health"
	"portico/gateway/upstream/transport"
)

// Endpoint is one address of a server.
type Endpoint struct {
	// URL identifies the endpoint: one that stays keeps its connections, counters and
	// state.
	URL string
	// Network and Address are for net.Dialer: "tcp" and host:port, or "unix" and the
	// path of a socket.
	Network, Address string
	// Base is the scheme and host of requests to it; nil is that of the server.
	Base *url.URL
	// Weight is its share of the requests; 0 drains it.
	Weight int
}

// ParseURL parses the URL of an endpoint: unix:///path, https://host:port or
// http://host:port (443 and 80 if left out). Requests to a socket have the host name.
// The weight is 1.
func ParseURL(name, text string) (Endpoint, error) {
	a, err := backend.ParseURL(text)
	if err != nil {
		return Endpoint{}, fmt.Errorf("backend %s: URL %q %w", name, text, err)
	}
	e := Endpoint{URL: text, Network: "tcp", Address: a.Host, Weight: 1}
	if a.Scheme == backend.Unix {
		e.Network, e.Address, e.Base = "unix", a.Path, &url.URL{Scheme: "http", Host: name}
		return e, nil
	}
	// As written: the server may know itself by that name.
	e.Base = &url.URL{Scheme: a.Scheme, Host: a.Named}
	return e, nil
}

// endpoint is an Endpoint and its state.
type endpoint struct {
	Endpoint  // the weight is guarded by Upstream.mu; the rest never changes
	transport *transport.Endpoint
	hash      uint64 // of the URL

	// active is the requests in progress, lasting those of them that are long-running.
	active, lasting atomic.Int64
	// answers is the requests of clients that the endpoint answered, without errors of its own.
	answers, errors, retries, ejections atomic.Uint64

	// waiting is canceled, and replaced, when the endpoint no longer answers its checks:
	// safe requests that have no answer yet are then sent to another endpoint.
	waiting atomic.Pointer[cancelable]
	// watches end one by one when the endpoint drains, followed answers at once when
	// requests go to other endpoints only. Both are sets of *answer.
	watches, followed sync.Map
	draining          atomic.Bool // is set with Upstream.mu held

	// The rest is guarded by Upstream.mu, except for health.Answers and Connections.

	health health.Endpoint
	// state follows from the health and the weight, and has since then.
	state backend.EndpointState
	since time.Time
	// used: it gets requests. growsSince is when it began to, while others did; zero:
	// its share does not grow.
	used       bool
	growsSince time.Time
}

// cancelable is a context with its cancel function.
type cancelable struct {
	context.Context
	cancel context.CancelFunc
}

func newCancelable() *cancelable {
	ctx, cancel := context.WithCancel(context.Background())
	return &cancelable{ctx, cancel}
}

func (u *Upstream) newEndpoint(spec Endpoint) *endpoint {
	e := &endpoint{Endpoint: spec, hash: balance.Hash(spec.URL), since: time.Now(), state: backend.EndpointUnknown}
	e.waiting.Store(newCancelable())
	base := u.base
	if spec.Base != nil {
		base = spec.Base
	}
	e.transport = transport.New(transport.Config{
		Network: spec.Network, Address: spec.Address, Base: base, Broken: func() { u.broken(spec.URL) },
		Timeouts: func() transport.Timeouts {
			p := u.policy.Load()
			return transport.Timeouts{Connect: p.Timeouts.Connect, Idle: p.Timeouts.Idle, MaxAge: p.Timeouts.MaxConnectionAge}
		},
	}, trustAt(base, u.trust))
	return e
}

// trustAt is the trust at an address: http has no TLS.
func trustAt(base *url.URL, t Trust) Trust {
	if base.Scheme == "http" {
		return Trust{Dial: t.Dial, Plain: true, PriorKnowledge: t.PriorKnowledge}
	}
	return t
}

// sameAs reports whether spec has the same address and base.
func (e *endpoint) sameAs(spec Endpoint) bool {
	return e.Network == spec.Network && e.Address == spec.Address &&
		(e.Base == nil) == (spec.Base == nil) && (e.Base == nil || *e.Base == *spec.Base)
}

// cancelWaiting cancels the safe requests that have no answer yet.
func (e *endpoint) cancelWaiting() { e.waiting.Swap(newCancelable()).cancel() }

// InProgress implements balance.Endpoint.
func (e *endpoint) InProgress(long bool) int64 {
	if long {
		return e.lasting.Load()
	}
	return e.active.Load() - e.lasting.Load()
}

// HashKey implements balance.Endpoint.
func (e *endpoint) HashKey() uint64 { return e.hash }

// begin and end count a request in progress.
func (e *endpoint) begin(k kind) {
	e.active.Add(1)
	if k != short {
		e.lasting.Add(1)
	}
}

func (e *endpoint) end(k kind) {
	e.active.Add(-1)
	if k != short {
		e.lasting.Add(-1)
	}
}
