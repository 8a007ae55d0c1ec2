package upstream

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
	"portico/gateway/upstream/health"
	"portico/gateway/upstream/transport"
)

// Endpoint is one address of a server.
type Endpoint struct {
	// URL identifies the endpoint: one that is set again keeps its connections,
	// counters and state.
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
	// As it was written: the server may know itself by that name.
	e.Base = &url.URL{Scheme: a.Scheme, Host: a.Named}
	return e, nil
}

// endpoint is an Endpoint and its state.
type endpoint struct {
	Endpoint  // the weight is guarded by Upstream.mu; the rest never changes
	transport *transport.Endpoint
	hash      uint64 // of the URL

	// active is the requests in progress, lasting those of them that are long-running.
	active, lasting                      atomic.Int64
	requests, errors, retries, ejections atomic.Uint64
	breaker                              health.Breaker

	pending pending
	// watches end one after the other when the endpoint drains, followed answers at
	// once when requests go to other endpoints only.
	watches, followed answers
	// drains: watches do not stay. It is changed with Upstream.mu.
	drains atomic.Bool

	// The rest is guarded by Upstream.mu.

	verdict availability.Verdict
	refused *period // it lately refused a connection
	ejected *period
	// provisional: a passed check ends the ejection.
	provisional bool
	history     health.History
	// state follows from the above, and has since then; lastErr is why it was last not
	// healthy.
	state   backend.EndpointState
	since   time.Time
	lastErr string
	// used: it gets requests. growsSince is since when its share of them grows; zero:
	// it has all of it.
	used       bool
	growsSince time.Time
	// draining is the time in which its watches end.
	draining *period
}

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

// close ends the endpoint's timers and idle connections; mu is held.
func (e *endpoint) close() {
	stop(&e.refused)
	e.endEjection()
	e.used = false
	e.transport.Close()
}

// pending are the safe requests in progress that have no answer yet: they can be sent
// to another endpoint if this one falls silent.
type pending struct {
	mu   sync.Mutex
	next *pendingRequest
}

type pendingRequest struct {
	cancel     context.CancelCauseFunc
	prev, next *pendingRequest
}

func (p *pending) add(w *pendingRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.next = p.next; w.next != nil {
		w.next.prev = w
	}
	p.next = w
}

func (p *pending) remove(w *pendingRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w.prev != nil:
		w.prev.next = w.next
	case p.next == w:
		p.next = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
}

// cancel cancels all of them.
func (p *pending) cancel(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := p.next; w != nil; w = w.next {
		w.cancel(cause)
	}
}
