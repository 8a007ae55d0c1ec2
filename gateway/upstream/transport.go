package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of the connections to one endpoint.
const (
	keepAlive = 15 * time.Second
	// maxIdle is how many idle HTTP/1.1 connections are kept to one endpoint.
	maxIdle = 256
	// A silent HTTP/2 connection is asked for a sign of life after
	// pingAfter and given up after pingTimeout more.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// expectTimeout is how long a body that waits for a 100 Continue waits for a
	// server that knows nothing of it.
	expectTimeout = time.Second
	// StreamBuffer is how much of a long-running answer waits here for a client
	// that does not read, in bytes; net/http would take up to 4 MiB for each.
	// The rest waits at the server, which shares it among all its watches.
	StreamBuffer = 256 << 10
	// frameSize is the largest HTTP/2 frame that is read, in bytes. Past events of a
	// watch are sent in frames of that size.
	frameSize = 64 << 10
	// maxHeader bounds the header of a response, in bytes, however it comes.
	maxHeader = 1 << 20
)

// way is how a request is sent.
type way int

const (
	// ordinary requests go by HTTP/1.1, which is fastest.
	ordinary way = iota
	// shared ones go by HTTP/2 where the server speaks it: many watches share a
	// connection, and a server that goes away says which requests it leaves.
	sharedWay
	// switching ones leave HTTP.
	switching
)

// progress is how far a request got.
type progress int

const (
	unsent    progress = iota // the server has not seen, or not taken, a byte of it
	sent                      // it may have seen all of it
	answering                 // and has begun to answer
)

// ways are the connections to one endpoint. They were made with the
// credentials of the present: when those change, or a server has not asked for
// them, later requests get new connections, and what is under way on old ones
// goes on.
//
// Safe for concurrent use.
type ways struct {
	network, address string
	base             *url.URL
	trust            atomic.Pointer[Trust]
	policy           func() *Policy
	// broken is told of established connections that broke; it must not block.
	broken func()
	// lookup finds the addresses of a host's name; nil: as the host does.
	lookup func(ctx context.Context, host string) ([]string, error)
	names  names
	// unasked is how long connections are used on which nobody asked for the
	// gateway's certificate.
	unasked unaskedTime
	// change, if not nil, adjusts every new transport of shared connections.
	change func(*http.Transport)

	mu      sync.Mutex // held while current is replaced
	current atomic.Pointer[generation]
	closed  atomic.Bool
}

// generation are the connections that were made with the same credentials.
type generation struct {
	trust       *Trust
	credentials credentials
	// unasked is when the first connection was made on which the server did not
	// ask for a certificate, in Unix nanoseconds; 0: there is none.
	unasked atomic.Int64

	direct *direct
	// rest is for what direct does not take.
	rest *aged
	// once makes a connection for each request: net/http sends a GET again if a
	// connection that was used before breaks, and an exec is a GET too.
	once   *http.Transport
	shared *shared // nil without TLS and without Trust.PriorKnowledge
}

// good reports whether the connections may be used for new requests.
func (g *generation) good(trust *Trust, now credentials, life *unaskedTime) bool {
	unasked := g.unasked.Load()
	return g.trust == trust && g.credentials == now && (unasked == 0 || time.Since(time.Unix(0, unasked)) < life.now())
}

// send sends a request to the endpoint, once. At an error progress says how far
// it got. The attempt, if not nil, is told how long connecting took, and asked
// whether what broke may be repeated.
func (w *ways) send(req *http.Request, how way, a *attempt) (*http.Response, progress, error) {
	if err := checkRequestLine(req); err != nil {
		closeBody(req)
		return nil, unsent, err
	}
	g, err := w.get()
	if err != nil {
		closeBody(req)
		return nil, unsent, err
	}
	if how == switching {
		return g.byTransport(g.once, req, a)
	}
	if how == sharedWay && g.shared != nil {
		res, p, err := g.shared.send(req, a.connecting())
		if errors.Is(err, errRetired) && !w.closed.Load() {
			// Others have taken the place of these connections meanwhile.
			if g, err = w.get(); err != nil {
				closeBody(req)
				return nil, unsent, err
			}
			res, p, err = g.shared.send(req, a.connecting())
		}
		if !errors.Is(err, errNotShared) {
			return res, p, err
		}
	}
	if g.direct.takes(req) {
		return g.direct.send(req, a)
	}
	return g.byTransport(g.rest.transport(), req, a)
}

// takesUntil is until when a connection that is made now takes new requests; zero:
// as long as it lasts. Connections that were made together are replaced one by
// one.
func takesUntil(age time.Duration) time.Time {
	if age <= 0 {
		return time.Time{}
	}
	return time.Now().Add(age - rand.N(age/jitterShare+1))
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// get returns the present generation.
func (w *ways) get() (*generation, error) {
	var now credentials
	trust := w.trust.Load()
	if !trust.Plain {
		var err error
		if now, err = trust.now(); err != nil {
			return nil, err
		}
	}
	if g := w.current.Load(); g != nil && g.good(trust, now, &w.unasked) {
		return g, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.current.Load()
	switch {
	case old == nil:
	case old.good(trust, now, &w.unasked):
		return old, nil
	case old.unaskedAgain(trust, now):
		w.unasked.again()
	default:
		w.unasked.begin()
	}
	g := w.generation(trust, now)
	if w.closed.Load() {
		g.retire()
	}
	w.current.Store(g)
	if old != nil {
		old.retire()
	}
	return g, nil
}

// successor returns the direct connections of the present, for who waited for
// earlier ones.
func (w *ways) successor() (*direct, error) {
	g, err := w.get()
	if err != nil {
		return nil, err
	}
	return g.direct, nil
}

// renew has later requests use new connections.
func (w *ways) renew() {
	w.unasked.begin()
	w.mu.Lock()
	defer w.mu.Unlock()
	if old := w.current.Swap(nil); old != nil {
		old.retire()
	}
}

// setTrust has later requests use new connections, made as it says.
func (w *ways) setTrust(t Trust) { w.trust.Store(&t) }

// open undoes close.
func (w *ways) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed.Store(false)
	if old := w.current.Swap(nil); old != nil { // made meanwhile, to be used once
		old.retire()
	}
}

// close lets go of idle connections. Requests under way go on, and their
// connections end with them.
func (w *ways) close() {
	w.closed.Store(true)
	w.renew()
}

func (g *generation) retire() {
	g.direct.retire()
	g.rest.CloseIdleConnections()
	g.once.CloseIdleConnections()
	if g.shared != nil {
		g.shared.retire()
	}
}

// generation makes what is needed to use the credentials.
func (w *ways) generation(trust *Trust, c credentials) *generation {
	g := &generation{trust: trust, credentials: c}
	idle := w.policy().Idle
	processors := runtime.GOMAXPROCS(0)
	g.direct = &direct{
		limit: func() time.Duration { return w.policy().Connect }, maxDials: dialsPerProcessor * processors, processors: processors,
		lateness: lateness, broken: w.broke, ended: w.unasked.begin, successor: w.successor, silence: silence, idleTimeout: idle, maxAge: w.policy().MaxAge, maxBody: directBody,
	}
	// http.Transport takes DialTLSContext for https, and DialContext for http.
	g.once = newTransport(idle)
	g.once.DisableKeepAlives = true
	g.once.DialContext, g.once.DialTLSContext = g.connect, g.connect
	g.rest = newAged(w.policy().MaxAge, func() *http.Transport {
		t := newTransport(idle)
		t.DialContext, t.DialTLSContext = g.connect, g.connect
		return t
	})
	if trust.Plain {
		g.direct.dial = func(ctx context.Context) (net.Conn, net.Conn, error) {
			conn, err := w.connect(ctx)
			return conn, conn, err
		}
		if trust.PriorKnowledge {
			g.shared = newShared(w, g)
		}
		return g
	}
	if w.network != "unix" {
		g.direct.maxBody = directBodyTCP
	}
	g.direct.dial = func(ctx context.Context) (net.Conn, net.Conn, error) {
		return w.secure(ctx, g, nil)
	}
	g.shared = newShared(w, g)
	return g
}

// newTransport returns a transport of HTTP/1.1 that lacks nothing but how it connects.
// What it says of HTTP/2 is for who makes connections of that by themselves.
func newTransport(idle time.Duration) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Protocols: protocols, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idle, ExpectContinueTimeout: expectTimeout,
		// The client's Accept-Encoding travels on; bodies are never inflated on
		// the way.
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: StreamBuffer, MaxReadFrameSize: frameSize,
		},
	}
}
