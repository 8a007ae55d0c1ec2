package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// errServed ends a dial whose request found a connection meanwhile.
var errServed = errors.New("the request was sent on another connection")

// gate has connections that many requests can share made one at a time.
// http.Transport dials for every request that finds none free, although the
// first connection will do for a thousand of them: ten thousand watches that
// start together would be as many handshakes, and descriptors, for ten
// connections. So a dial waits for the one before it, and is not done if its
// request was served by that, or if that failed.
//
// The zero gate is ready. Safe for concurrent use.
type gate struct {
	// open: the server does not share connections; nobody waits.
	open atomic.Bool

	mu     sync.Mutex
	flight *flight // nil: nobody dials
}

// flight is a dial under way.
type flight struct {
	done chan struct{} // closed at its end
	err  error         // valid after done
}

// dial dials when it is its turn.
func (g *gate) dial(ctx context.Context, dial func() (*tls.Conn, error)) (*tls.Conn, error) {
	for !g.open.Load() {
		if w := wantFrom(ctx); w != nil && w.served.Load() {
			return nil, errServed
		}
		mine, other := g.enter()
		if other == nil {
			conn, err := dial()
			if err == nil && conn.ConnectionState().NegotiatedProtocol != "h2" {
				g.open.Store(true)
			}
			g.leave(mine, err)
			return conn, err
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if other.err != nil {
			return nil, other.err
		}
	}
	return dial()
}

// enter returns either a flight of the caller's own or the one to wait for.
func (g *gate) enter() (mine, other *flight) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.flight != nil {
		return nil, g.flight
	}
	g.flight = &flight{done: make(chan struct{})}
	return g.flight, nil
}

func (g *gate) leave(f *flight, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f.err, g.flight = err, nil
	close(f.done)
}

// want is a request as a dial sees it.
type want struct{ served atomic.Bool }

type wantKey struct{}

func wantFrom(ctx context.Context) *want {
	w, _ := ctx.Value(wantKey{}).(*want)
	return w
}

// withWant has dials for the request know when it has a connection. The context
// of a dial has the values of its request's and outlives it.
func withWant(req *http.Request) *http.Request {
	w := new(want)
	ctx := context.WithValue(req.Context(), wantKey{}, w)
	return req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { w.served.Store(true) },
	}))
}
