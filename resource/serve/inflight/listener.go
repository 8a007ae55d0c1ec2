package inflight

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Listener returns a listener whose connections are counted. A new connection waits until
// there is room for it.
func (a *Connections) Listener(l net.Listener) net.Listener { return &listener{l, a} }

type listener struct {
	net.Listener
	connections *Connections
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, counted: l.connections.accept(conn)}, nil
}

// countedConn is a connection of a listener, below TLS.
type countedConn struct {
	net.Conn
	counted *Connection
}

// Read implements net.Conn. While it reads, the server waits for the client.
func (c *countedConn) Read(b []byte) (int, error) {
	if !c.counted.hasUser.Load() {
		c.counted.waiting.Store(time.Now().UnixNano())
		defer c.counted.waiting.Store(0)
	}
	return c.Conn.Read(b)
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.counted.close()
	return c.Conn.Close()
}

// NetConn returns the connection below.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

type connectionKey struct{}

// ConnContext is for http.Server: ConnectionFrom finds the connection in the context.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	if c := connectionOf(conn); c != nil {
		return context.WithValue(ctx, connectionKey{}, c)
	}
	return ctx
}

// ConnectionFrom returns the connection of a request; nil if it is not counted.
func ConnectionFrom(ctx context.Context) *Connection {
	c, _ := ctx.Value(connectionKey{}).(*Connection)
	return c
}

func connectionOf(conn net.Conn) *Connection {
	if t, ok := conn.(*tls.Conn); ok {
		if counted, ok := t.NetConn().(*countedConn); ok {
			return counted.counted
		}
	}
	return nil
}

// ConnState is for http.Server: it tracks which connections are idle.
func ConnState(conn net.Conn, state http.ConnState) {
	switch c := connectionOf(conn); {
	case c == nil:
	case state == http.StateIdle:
		c.setIdle()
	case state == http.StateActive:
		c.setActive()
	}
}
