package serve

import "net"

// clientListener accepts the connections of network clients and counts them.
type clientListener struct {
	net.Listener
	clients *connections
}

// Accept returns the next connection once there is room for it.
func (l clientListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &clientConn{Conn: conn, client: l.clients.admit(conn)}, nil
}

// clientConn is a counted connection, below TLS.
type clientConn struct {
	net.Conn
	client *client
}

// Read marks the client as waited for while it reads.
func (c *clientConn) Read(b []byte) (int, error) {
	defer c.client.reads()()
	return c.Conn.Read(b)
}

// Close releases the connection's place.
func (c *clientConn) Close() error {
	c.client.isClosed()
	return c.Conn.Close()
}

// NetConn returns the connection below.
func (c *clientConn) NetConn() net.Conn { return c.Conn }
