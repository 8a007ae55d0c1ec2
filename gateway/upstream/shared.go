package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// errNotShared is of a server that does not speak HTTP/2.
var errNotShared = errors.New("the server does not share connections")

// errTakesNone is of a server that takes a connection, but no request on it: it says
// GOAWAY, or that it takes none at a time.
var errTakesNone = &ConnectError{errors.New("the server has taken an HTTP/2 connection and takes no requests on it")}

// errRetired is of connections that others have taken the place of.
var errRetired = fmt.Errorf("the connections are not used any more: %w", errNotShared)

// shared are HTTP/2 connections to one endpoint, with many requests on each.
// They are kept here and not by http.Transport, for two reasons. That sends a
// request again on its own, also where it cannot know that the server did not
// take it. And it dials for every request that finds no connection free,
// although the first will do for a hundred of them: ten thousand watches that
// start together would be as many handshakes. Here connections are made one at
// a time, and whoever needs one waits for that.
//
// The connections are those of golang.org/x/net: of Go 1.26.8's own, two frames from
// a server (a WINDOW_UPDATE beyond the largest window, for a stream with a request)
// lock themselves up for good, and everybody who asks them anything.
//
// Safe for concurrent use. Under its lock connections are asked nothing that could
// wait for the server: State does, while something is written to one that does not
// read.
type shared struct {
	// connect makes a connection; errNotShared if it cannot be shared.
	connect func(context.Context) (*sharedConn, error)
	// maxAge is how long connections take new requests; 0: as long as they last.
	maxAge time.Duration
	// none: the server does not speak HTTP/2.
	none atomic.Bool

	mu      sync.Mutex
	conns   []*sharedConn
	flight  *flight // nil: nobody connects
	retired bool
}

// flight is a connection being made.
type flight struct {
	done chan struct{} // closed at its end
	err  error         // valid after done
	told atomic.Bool   // somebody was told the error
}

// failure returns why there is no connection. The first who asks is told it, and blames
// the server; the others waited, and it was one connection that failed.
func (f *flight) failure() error {
	if !f.told.Swap(true) || errors.Is(f.err, errNotShared) {
		return f.err
	}
	return &behindError{f.err}
}

// landed returns a flight that has ended with an error.
func landed(err error) *flight {
	f := &flight{done: make(chan struct{}), err: err}
	close(f.done)
	return f
}

func newShared(w *ways, g *generation) *shared {
	s := &shared{maxAge: w.policy().MaxAge}
	t := newTransport(w.policy().Idle)
	if w.change != nil {
		w.change(t)
	}
	h2, err := http2.ConfigureTransports(t)
	if err != nil {
		s.connect = func(context.Context) (*sharedConn, error) { return nil, err }
		return s
	}
	if g.trust.Plain {
		s.connect = func(ctx context.Context) (*sharedConn, error) { return s.connectPlain(ctx, w, h2) }
		return s
	}
	s.connect = func(ctx context.Context) (*sharedConn, error) {
		conn, raw, err := w.secure(ctx, g, []string{"h2", "http/1.1"})
		if err != nil {
			return nil, err
		}
		watched := raw.(*watchedConn)
		if conn.(*tls.Conn).ConnectionState().NegotiatedProtocol != "h2" {
			s.none.Store(true)
			// What it watches can be looked at before it is used again.
			g.direct.put(newDirectConn(g.direct, conn, watched.Conn))
			return nil, errNotShared
		}
		return s.begin(ctx, w, h2, conn, watched)
	}
	return s
}

// begin begins HTTP/2 on a connection.
func (s *shared) begin(ctx context.Context, w *ways, h2 *http2.Transport, conn net.Conn, watched *watchedConn) (*sharedConn, error) {
	cc, err := h2.NewClientConn(conn)
	if err != nil {
		_ = conn.Close()
		return nil, &ConnectError{err}
	}
	if err := w.acquaint(ctx, cc); err != nil {
		go cc.Close()
		return nil, &ConnectError{err}
	}
	return &sharedConn{ClientConn: cc, closed: &watched.closed, begun: time.Now(), until: takesUntil(s.maxAge)}, nil
}

// acquaint waits until the server has said how many requests it takes at a time. Who
// sends what comes meanwhile sends too many to a server that takes few, and a burst has
// them refused. The first frame of a server is its SETTINGS (RFC 9113, 3.4), so they
// are known when it answers a PING.
func (w *ways) acquaint(ctx context.Context, cc *http2.ClientConn) error {
	limit := w.policy().Connect
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	switch err := cc.Ping(ctx); {
	case err != nil && context.Cause(ctx) == errSlow:
		return fmt.Errorf("HTTP/2 with %s did not begin within %v", w.address, limit)
	case err != nil:
		return fmt.Errorf("begin HTTP/2 with %s: %w", w.address, err)
	}
	return nil
}

// maxUnusable bounds how many connections are tried that turn out to be closed.
const maxUnusable = 4

// send sends a request. The server has not taken one that it refused, or that
// came after the last it said it would take.
func (s *shared) send(req *http.Request, connected *time.Duration) (_ *http.Response, _ progress, err error) {
	req, settle := informed(req)
	defer func() { settle(err) }()
	for i := 1; ; i++ {
		if s.none.Load() {
			return nil, unsent, errNotShared
		}
		started := time.Now()
		conn, made, err := s.take(req.Context())
		if err != nil {
			if !errors.Is(err, errNotShared) {
				closeBody(req)
			}
			return nil, unsent, err
		}
		if made && connected != nil {
			*connected = time.Since(started)
		}
		res, err := conn.RoundTrip(req)
		switch {
		case err == nil:
			return res, answering, nil
		case i < maxUnusable && err.Error() == errUnusable && (req.Body == nil || req.Body == http.NoBody):
			continue
		case strings.HasSuffix(err.Error(), errHeaderList):
			return nil, unsent, &HeaderError{}
		case untaken(err):
			return nil, unsent, err
		}
		return nil, sent, err
	}
}

// x/net has no other names for these errors.
const (
	errUnusable = "http2: client conn not usable"
	errGoAway   = "http2: Transport received Server's graceful shutdown GOAWAY"
	errUnmade   = "http2: client conn could not be established"
	// errGoAwayFirst begins what it says of the first request of a connection, if
	// the server names an error, and no request as the last that it took.
	errGoAwayFirst = "http2: Transport received GOAWAY from server ErrCode:"
)

// untaken reports whether the server said, or is known, not to have begun with
// the request of which this is the error.
func untaken(err error) bool {
	var stream http2.StreamError
	if errors.As(err, &stream) {
		return stream.Code == http2.ErrCodeRefusedStream
	}
	text := err.Error()
	return text == errUnusable || text == errGoAway || text == errUnmade || strings.HasPrefix(text, errGoAwayFirst)
}

// take returns a connection with room for one request more, reserved; made says
// that it had to be waited for.
func (s *shared) take(ctx context.Context) (conn *sharedConn, made bool, err error) {
	for {
		conn, f := s.free()
		if conn != nil {
			return conn, made, nil
		}
		made = true
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
		if f.err != nil {
			return nil, false, f.failure()
		}
	}
}

// free returns a connection that has room, or the flight to wait for.
func (s *shared) free() (*sharedConn, *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		// Its connections end with what they carry; more would be closed at once.
		return nil, landed(errRetired)
	}
	kept := s.conns[:0]
	var found *sharedConn
	now := time.Now()
	for _, conn := range s.conns {
		switch {
		case conn.closed.Load():
			continue
		case !conn.until.IsZero() && now.After(conn.until):
			conn.retire()
			continue
		}
		kept = append(kept, conn)
		if found != nil {
			continue
		}
		if conn.ReserveNewRequest() {
			found, conn.used = conn, true
		} else if now.Sub(conn.examined) >= examineAgain && conn.examining.CompareAndSwap(false, true) {
			conn.examined = now
			go conn.endIfUseless()
		}
	}
	clear(s.conns[len(kept):])
	s.conns = kept
	if found != nil {
		return found, nil
	}
	if s.flight == nil {
		if n := len(kept); n > 0 && !kept[n-1].used {
			// The next one would be as this is; it is closed soon, and then tried.
			return nil, landed(errTakesNone)
		}
		s.flight = &flight{done: make(chan struct{})}
		go s.fly(s.flight)
	}
	return nil, s.flight
}

// fly makes a connection. It is nobody's own: who asked for it first may go
// away, and others still want it.
func (s *shared) fly(f *flight) {
	conn, err := s.connect(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && s.retired:
		go conn.Close()
		err = errRetired
	case err == nil:
		s.conns = append(s.conns, conn)
	}
	f.err, s.flight = err, nil
	close(f.done)
}

// retire closes the connections, each when its last request has ended.
func (s *shared) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	for _, conn := range s.conns {
		conn.retire()
	}
}
