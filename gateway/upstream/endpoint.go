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
)

// Endpoint is one address of a server.
type Endpoint struct {
	// URL is how it is shown, and its identity: an endpoint that is set again
	// keeps its connections, its counters and its state.
	URL string
	// Network and Address are where it is: "tcp" and host:port, or "unix" and
	// the path of a socket.
	Network, Address string
	// Base is the scheme and host that requests to it are addressed to; nil is
	// that of the server.
	Base *url.URL
	// Weight is its share of the requests; 0 drains it.
	Weight int
}

// ParseURL reads where an endpoint is: unix:///path, https://host:port or
// http://host:port (443 and 80 if left out). Requests to a socket are addressed
// to name. The weight is 1.
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
	// As it was written: a server may know itself by that name.
	e.Base = &url.URL{Scheme: a.Scheme, Host: a.Named}
	return e, nil
}

// endpoint is an Endpoint and what is known of it.
type endpoint struct {
	Endpoint // of Upstream.mu: the weight; the rest never changes
	ways     *ways
	hash     uint64 // of the URL

	// active are the requests under way, lasting those of them that are
	// long-running.
	active, lasting                      atomic.Int64
	requests, errors, retries, ejections atomic.Uint64
	// badAnswers and badConns came one after the other up to now.
	badAnswers, badConns atomic.Int32

	pending pending
	streams streams
	// followed are answers that end as soon as requests go to others only.
	followed streams
	// drains: watches do not stay. It is changed with Upstream.mu.
	drains atomic.Bool

	// What follows is guarded by Upstream.mu.

	verdict availability.Verdict
	refused *spell // it lately refused a connection
	ejected ejection
	// state is what the above come to, and since when; lastErr is why it was
	// last not healthy.
	state   backend.EndpointState
	since   time.Time
	lastErr string
	// used: it gets requests. warming is since when its share of them grows; zero:
	// it has all of it.
	used    bool
	warming time.Time
	// left is, of one that drains, that its watches are being ended.
	left *spell
}

// current works out the state; mu is held.
func (e *endpoint) current() backend.EndpointState {
	switch {
	case e.Weight == 0:
		return backend.EndpointDraining
	case e.verdict.Known && !e.verdict.Healthy || e.refused != nil:
		return backend.EndpointUnhealthy
	case e.ejected.out != nil:
		return backend.EndpointEjected
	case !e.verdict.Known:
		return backend.EndpointUnknown
	}
	return backend.EndpointHealthy
}

// stop ends what the endpoint does by itself, and its idle connections; mu is
// held.
func (e *endpoint) stop() {
	end(&e.refused)
	e.ejected.end()
	e.used = false
	e.ways.close()
}

// pending are the safe requests under way to an endpoint that have not been
// answered: they can be sent to another if this one falls silent.
type pending struct {
	mu   sync.Mutex
	next *waiting
}

// waiting is one of them.
type waiting struct {
	cancel     context.CancelCauseFunc
	began      time.Time
	prev, next *waiting
}

func (p *pending) add(w *waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.next = p.next; w.next != nil {
		w.next.prev = w
	}
	p.next = w
}

func (p *pending) remove(w *waiting) {
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

// cancel gives all of them up.
func (p *pending) cancel(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := p.next; w != nil; w = w.next {
		w.cancel(cause)
	}
}
