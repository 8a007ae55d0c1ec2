package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// unaskedLife is how long connections are used on which the server did not ask
// for the gateway's certificate. A server that starts may learn only later whom
// to ask for; on a connection made before, every request would be anonymous for
// as long as the connection lasts.
const unaskedLife = 10 * time.Second

// renewed sends requests by connections that were made with the credentials of
// the present. When those change, or a server has not asked for them, later
// requests get new connections; what is under way on old ones goes on.
//
// Safe for concurrent use.
type renewed struct {
	trust  Trust
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	shared bool // many requests on one connection, by HTTP/2
	// change, if not nil, adjusts every new transport.
	change func(*http.Transport)

	mu      sync.Mutex // held while current is replaced
	current atomic.Pointer[generation]
}

// generation is a transport and what its connections were made with.
type generation struct {
	*http.Transport
	credentials credentials
	// unasked is when the first connection was made on which the server did not
	// ask for a certificate, in Unix nanoseconds; 0: there is none.
	unasked atomic.Int64
}

// good reports whether the connections may be used for new requests.
func (g *generation) good(now credentials) bool {
	unasked := g.unasked.Load()
	return g.credentials == now && (unasked == 0 || time.Since(time.Unix(0, unasked)) < unaskedLife)
}

// RoundTrip implements http.RoundTripper.
func (r *renewed) RoundTrip(req *http.Request) (*http.Response, error) {
	g, err := r.get()
	if err != nil {
		closeBody(req)
		return nil, err
	}
	if r.shared {
		req = withWant(req)
	}
	return g.RoundTrip(req)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// get returns the present generation.
func (r *renewed) get() (*generation, error) {
	now, err := r.trust.now()
	if err != nil {
		return nil, err
	}
	if g := r.current.Load(); g != nil && g.good(now) {
		return g, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.current.Load()
	if old != nil && old.good(now) {
		return old, nil
	}
	g := r.generation(now)
	r.current.Store(g)
	if old != nil {
		old.CloseIdleConnections()
	}
	return g, nil
}

// generation makes a transport for the credentials.
func (r *renewed) generation(c credentials) *generation {
	g := &generation{Transport: newTransport(r.shared), credentials: c}
	var protocols []string
	if r.shared {
		protocols = []string{"h2", "http/1.1"}
	}
	connect := func(ctx context.Context, network, address string) (*tls.Conn, error) {
		conn, err := r.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		t := r.trust
		if t.ServerName == "" {
			// Whom the URL names.
			if t.ServerName, _, err = net.SplitHostPort(address); err != nil {
				_ = conn.Close()
				return nil, err
			}
		}
		secured, asked, err := t.handshake(ctx, conn, c, protocols)
		if err == nil && !asked && c.certificate != nil {
			g.unasked.CompareAndSwap(0, time.Now().UnixNano())
		}
		return secured, err
	}
	var gate gate
	g.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dial := func() (*tls.Conn, error) { return connect(ctx, network, address) }
		conn, err := (*tls.Conn)(nil), error(nil)
		if r.shared {
			conn, err = gate.dial(ctx, dial)
		} else {
			conn, err = dial()
		}
		if err != nil {
			return nil, err // not a nil *tls.Conn in an interface
		}
		return conn, nil
	}
	if r.change != nil {
		r.change(g.Transport)
	}
	return g
}

// CloseIdleConnections lets go of idle connections.
func (r *renewed) CloseIdleConnections() {
	if g := r.current.Load(); g != nil {
		g.CloseIdleConnections()
	}
}
