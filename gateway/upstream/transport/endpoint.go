package transport

import (
	"errors"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of the connections to one endpoint.
const (
	// keepAlive is how long a TCP connection is silent before keep-alive probes are sent;
	// three without an answer within this time end it.
	keepAlive = 15 * time.Second
	// pingAfter is how long an HTTP/2 connection is silent before it gets a PING, which
	// must be answered within pingTimeout.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// expectTimeout is how long a body waits for 100 Continue from a server that does
	// not send it.
	expectTimeout = time.Second
	// StreamBuffer bounds what is buffered of a long-running HTTP/2 answer for a client
	// that does not read, in bytes; net/http's default is 4 MiB. Flow control keeps the
	// rest at the server, which shares it among its watches.
	StreamBuffer = 256 << 10
	// frameSize is the largest HTTP/2 frame that is read, in bytes. Past events of a
	// watch are sent in frames of that size.
	frameSize = 64 << 10
	// maxHeader bounds the header of a response, in bytes.
	maxHeader = 1 << 20
	// dialsPerProcessor bounds the concurrent HTTP/1.1 dials to an endpoint, for each
	// processor of the gateway. A TLS handshake takes one to two milliseconds of a
	// processor: these are done well within the default time to connect, one second.
	dialsPerProcessor = 16
)

// Protocol is how a request is sent.
type Protocol int

const (
	// HTTP1 is for short requests: a connection for each.
	HTTP1 Protocol = iota
	// HTTP2 shares connections, where the server speaks it; else it is HTTP1.
	HTTP2
	// Upgrade is HTTP/1.1 on a new connection, for requests that leave HTTP.
	Upgrade
)

// Timeouts of connections.
type Timeouts struct {
	// Connect bounds dialing and the TLS handshake together.
	Connect time.Duration
	// Idle is how long an unused connection is kept.
	Idle time.Duration
	// MaxAge is how long a connection takes new requests; 0: as long as it lasts.
	MaxAge time.Duration
}

// Config of an Endpoint.
type Config struct {
	// Network and Address are for net.Dialer: "tcp" and host:port, or "unix" and the
	// path of a socket.
	Network, Address string
	// Base is the scheme and host of the endpoint. TLS verifies the host if the Trust
	// has no ServerName.
	Base *url.URL
	// Timeouts returns the timeouts that hold now.
	Timeouts func() Timeouts
	// Broken is called when an established connection breaks. It must not block.
	Broken func()
}

// Endpoint is the connections to one endpoint of a server. They are made with the
// credentials of one moment: when these change, later requests use new connections,
// and requests in progress finish on the old ones.
type Endpoint struct {
	cfg    Config
	trust  atomic.Pointer[Trust]
	adjust func(*http.Transport) // of HTTP/2, for tests; nil: nothing

	mu      sync.Mutex // held while current is replaced
	current atomic.Pointer[generation]
}

// New returns an Endpoint. It connects when the first request is sent.
func New(cfg Config, t Trust) *Endpoint {
	e := &Endpoint{cfg: cfg}
	e.SetTrust(t)
	return e
}

// Base returns the scheme and host of the endpoint. It must not be changed.
func (e *Endpoint) Base() *url.URL { return e.cfg.Base }

// generation is the connections that were made with the same credentials.
type generation struct {
	cfg         *Config
	trust       *Trust
	credentials credentials

	http1 *http1Pool
	http2 *http2Pool // nil without TLS and without Trust.PriorKnowledge
}

// RoundTrip sends a request once, addressed to Base. If it fails, sent reports whether
// the server may have seen any of the request: it may only be repeated otherwise, or if
// it changes nothing. Informational responses (1xx) are not forwarded.
func (e *Endpoint) RoundTrip(req *http.Request, protocol Protocol) (res *http.Response, sent bool, err error) {
	if err := checkRequestLine(req); err != nil {
		closeBody(req)
		return nil, false, err
	}
	for {
		g, err := e.generation()
		if err != nil {
			closeBody(req)
			return nil, false, err
		}
		res, sent, err := g.roundTrip(req, protocol)
		if err != errRetired { // else another generation has replaced it
			return res, sent, err
		}
	}
}

func (g *generation) roundTrip(req *http.Request, protocol Protocol) (res *http.Response, sent bool, err error) {
	if protocol == HTTP2 && g.http2 != nil {
		if res, sent, err = g.http2.roundTrip(req); !errors.Is(err, errNoHTTP2) {
			return res, sent, err
		}
	}
	return g.http1.roundTrip(req, protocol)
}

// usable reports whether the connections may be used for new requests.
func (g *generation) usable(trust *Trust, now credentials) bool {
	return g.trust == trust && g.credentials == now
}

// generation returns the connections for new requests.
func (e *Endpoint) generation() (*generation, error) {
	var now credentials
	trust := e.trust.Load()
	if !trust.Plain {
		var err error
		if now, err = trust.now(); err != nil {
			return nil, err
		}
	}
	if g := e.current.Load(); g != nil && g.usable(trust, now) {
		return g, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	old := e.current.Load()
	if old != nil && old.usable(trust, now) {
		return old, nil
	}
	g, err := e.newGeneration(trust, now)
	if err != nil {
		return nil, err
	}
	if old != nil {
		if g.http2 != nil && old.trust == trust && old.http2.unsupported.Load() {
			g.http2.unsupported.Store(true) // Multiplexes must not assume otherwise again
		}
		old.retire()
	}
	e.current.Store(g)
	return g, nil
}

func (e *Endpoint) newGeneration(trust *Trust, c credentials) (g *generation, err error) {
	g = &generation{cfg: &e.cfg, trust: trust, credentials: c}
	g.http1 = newHTTP1Pool(g)
	if !trust.Plain || trust.PriorKnowledge {
		g.http2, err = newHTTP2Pool(g, e.adjust)
	}
	return g, err
}

func (g *generation) newPool(maxDials int) *pool {
	return &pool{timeouts: g.cfg.Timeouts, broken: g.cfg.Broken, maxDials: maxDials}
}

func (g *generation) retire() {
	g.http1.retire()
	if g.http2 != nil {
		g.http2.retire()
	}
}

// Renew closes idle connections, and the others after their last request. Later requests
// use new ones.
func (e *Endpoint) Renew() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if old := e.current.Swap(nil); old != nil {
		old.retire()
	}
}

// SetTrust replaces how the server is authenticated, for later requests.
func (e *Endpoint) SetTrust(t Trust) { e.trust.Store(&t) }

// Multiplexes reports whether long-running requests share connections. It is assumed
// until the first connection is made.
func (e *Endpoint) Multiplexes() bool {
	g := e.current.Load()
	return g == nil || g.http2 != nil && !g.http2.unsupported.Load()
}
