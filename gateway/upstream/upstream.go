package upstream

import (
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"portico/apiservice/backend"
	"portico/gateway/upstream/retry"
	"portico/resource"
	"portico/resource/fairshare"
)

// Config of an Upstream.
type Config struct {
	// Base is the scheme and host of requests to endpoints that have none of their own.
	// It must not be changed. Required.
	Base *url.URL
	// Endpoints are those of the server; SetEndpoints replaces them.
	Endpoints []Endpoint
	Trust     Trust
	Policy    Policy
	// Via adds the gateway's id to every request, also the gateway's own; nil adds none.
	Via *Via
	// Lasting bounds the connections that carry a single long-running request, because
	// it leaves HTTP or its server does not speak HTTP/2. Upstreams share it. nil is no
	// bound.
	Lasting *fairshare.Limit
	// REST is a server that is no Kubernetes API server. It may take any time to answer:
	// a timeout does not count against its endpoints.
	REST bool
	// Broken, if not nil, is called with the URL of an endpoint when a connection or a
	// request to it fails, so that it is checked at once. It must not block.
	Broken func(url string)
	// Changed, if not nil, is called when the state of an endpoint changes. It must
	// neither block nor call the Upstream.
	Changed func()
}

// Policy is the policy of a Backend with every default applied.
type Policy struct {
	backend.Policy
	// ExemptUnlimited: requests of users without limits (resource.User.Unlimited) are
	// counted and never refused.
	ExemptUnlimited bool
}

// NewPolicy returns the policy of a Backend. The spec must be valid; the zero Spec has
// the defaults.
func NewPolicy(spec *backend.Spec) Policy { return Policy{Policy: spec.Policy()} }

// retries reports whether requests are repeated.
func (p *Policy) retries() bool { return p.Retries.BudgetPercent > 0 || p.Retries.MinPerSecond > 0 }

// Upstream is one server behind the gateway, with one or more endpoints, which may
// change. Safe for concurrent use.
type Upstream struct {
	base    *url.URL
	rest    bool
	via     *Via
	broken  func(url string)
	changed func()
	// addressed is the Base of the only endpoint, if it has one, and otherwise base.
	addressed atomic.Pointer[url.URL]

	policy   atomic.Pointer[Policy]
	balancer atomic.Pointer[balancer]
	limit    limiter
	// lasting is Config.Lasting.
	lasting *fairshare.Limit
	budget  retry.Budget

	overflowed, outOfBudget atomic.Uint64

	drainWithin time.Duration // the constant, but in tests

	mu        sync.Mutex // guards the endpoints and their states
	trust     Trust
	endpoints []*endpoint
	timer     *time.Timer // for the next change of states or shares; nil: there is none
	closed    bool
}

// New returns an Upstream. It connects when the first request is sent.
func New(cfg Config) *Upstream {
	u := &Upstream{
		base: cfg.Base, rest: cfg.REST, via: cfg.Via, trust: cfg.Trust, lasting: cfg.Lasting, broken: cfg.Broken, changed: cfg.Changed,
		drainWithin: drainWithin,
	}
	if u.broken == nil {
		u.broken = func(string) {}
	}
	if u.changed == nil {
		u.changed = func() {}
	}
	u.SetPolicy(cfg.Policy)
	u.SetEndpoints(cfg.Endpoints)
	return u
}

// At returns endpoints at addresses (host:port), of equal weight.
func At(addresses ...string) []Endpoint {
	out := make([]Endpoint, 0, len(addresses))
	for _, a := range addresses {
		out = append(out, Endpoint{URL: "https://" + a, Network: "tcp", Address: a, Weight: 1})
	}
	return out
}

// Base returns the scheme and host that requests should be addressed to now. It must
// not be changed. A request with another address is sent as well, at the cost of a
// copy.
func (u *Upstream) Base() *url.URL { return u.addressed.Load() }

// Policy returns the policy.
func (u *Upstream) Policy() Policy { return *u.policy.Load() }

// Endpoints returns the endpoints as they were set.
func (u *Upstream) Endpoints() []Endpoint {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]Endpoint, 0, len(u.endpoints))
	for _, e := range u.endpoints {
		out = append(out, e.Endpoint)
	}
	return out
}

// SetPolicy replaces the policy. Connections are replaced if their idle timeout or
// their age changes.
func (u *Upstream) SetPolicy(p Policy) {
	u.mu.Lock()
	defer u.mu.Unlock()
	old := u.policy.Swap(&p)
	u.limit.set(p.Limits.Concurrent, p.Limits.Queue)
	if old != nil && (old.Timeouts.Idle != p.Timeouts.Idle || old.Timeouts.MaxConnectionAge != p.Timeouts.MaxConnectionAge) {
		for _, e := range u.endpoints {
			e.transport.Renew()
		}
	}
	if p.Outlier.MaxEjectionPercent == 0 {
		for _, e := range u.endpoints {
			e.health.EndEjection(time.Now())
		}
	}
	u.rebuild()
}

// SetTrust replaces how the server is authenticated. Later requests use new
// connections, requests in progress continue, and endpoints keep their state until the
// next check.
func (u *Upstream) SetTrust(t Trust) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.trust = t
	for _, e := range u.endpoints {
		e.transport.SetTrust(trustAt(e.transport.Base(), t))
	}
}

// SetEndpoints replaces the endpoints. One that keeps its URL and address keeps its
// connections, counters and state. One that is removed drains (drain.go).
func (u *Upstream) SetEndpoints(list []Endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	next := make([]*endpoint, 0, len(list))
	kept := map[*endpoint]bool{}
	for _, spec := range list {
		e := u.find(spec.URL)
		if e == nil || kept[e] || !e.sameAs(spec) {
			e = u.newEndpoint(spec)
		}
		e.Weight, kept[e] = spec.Weight, true
		next = append(next, e)
	}
	for _, e := range u.endpoints {
		if !kept[e] {
			u.remove(e)
		}
	}
	u.endpoints = next
	u.addressed.Store(u.base)
	if len(next) == 1 && next[0].Base != nil {
		u.addressed.Store(next[0].Base)
	}
	u.rebuild()
}

// find returns an endpoint by its URL; mu is held.
func (u *Upstream) find(url string) *endpoint {
	for _, e := range u.endpoints {
		if e.URL == url {
			return e
		}
	}
	return nil
}

// Close closes idle connections. Requests in progress finish, and watches are ended one
// by one.
func (u *Upstream) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	u.closed = true
	if u.timer != nil {
		u.timer.Stop()
	}
	for _, e := range u.endpoints {
		u.remove(e)
	}
}

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Short sends requests with a deadline.
func (u *Upstream) Short() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) { return u.send(r, short) })
}

// Long sends long-running requests, which have none.
func (u *Upstream) Long() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) { return u.send(r, long) })
}

// Upgrade sends requests that leave HTTP.
func (u *Upstream) Upgrade() http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) { return u.send(r, upgrade) })
}

// RoundTrip sends a request of the gateway itself to the server, whatever its address.
// The request must have the gateway's identity.
func (u *Upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	base := u.Base()
	out.URL.Scheme, out.URL.Host, out.Host = base.Scheme, base.Host, base.Host
	if resource.ParseAction(req).LongRunning() {
		return u.send(out, long)
	}
	return u.send(out, short)
}
