package upstream

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"

	"golang.org/x/net/http2"
)

// connectPlain makes a connection without TLS that begins with HTTP/2, by prior
// knowledge (RFC 9113, 3.3). A server that does not speak it answers the preface, a
// request of HTTP/1.1 by its form, with an error of HTTP/1.1, or closes the connection.
func (s *shared) connectPlain(ctx context.Context, w *ways, h2 *http2.Transport) (*sharedConn, error) {
	raw, err := w.connect(ctx)
	if err != nil {
		return nil, err
	}
	watched := &watchedConn{Conn: raw, broken: w.broke, ended: w.broken, lasting: true}
	conn := &prefacedConn{Conn: watched}
	shared, err := s.begin(ctx, w, h2, conn, watched)
	switch {
	case err == nil:
		return shared, nil
	case conn.read.Load() == readHTTP1:
		s.none.Store(true)
		return nil, errNotShared
	case conn.read.Load() == readEnd, errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		// The server closed the connection, perhaps before its answer was read. It may
		// also be one that stops: the next request tries again.
		return nil, errNotShared
	}
	return nil, err
}

// What a prefacedConn has read.
const (
	readNothing int32 = iota
	readHTTP1
	readOther
	readEnd // before anything else
)

// prefacedConn remembers how the server answers the preface. Its first Read is made by
// one goroutine.
type prefacedConn struct {
	net.Conn
	read atomic.Int32
}

// Read reads, and looks at the first bytes.
func (c *prefacedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.read.Load() != readNothing {
		return n, err
	}
	switch {
	case bytes.HasPrefix(p[:n], []byte("HTTP/")):
		c.read.Store(readHTTP1)
	case n > 0:
		c.read.Store(readOther)
	case err != nil:
		c.read.Store(readEnd)
	}
	return n, err
}
