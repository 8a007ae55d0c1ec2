package inflight

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource/fairshare"
)

// Shares of the descriptors that a process may have open (RLIMIT_NOFILE).
const (
	// processShare of them is kept for connections to other servers and for files; at
	// least processMin, unless that is more than half.
	processShare = 8
	processMin   = 2048
	// unauthenticatedShare of the others is for connections without a user, within
	// bounds. Each takes about 56 KB after its handshake, and a header more.
	unauthenticatedShare                   = 12
	unauthenticatedMin, unauthenticatedMax = 64, 512
	// idleMax bounds the connections with a user that have no request.
	idleMax = 2048
)

// unknownDescriptors is assumed if the limit is unknown.
const unknownDescriptors = 1 << 16

// A connection without a user is ended in favour of a new one if the server has waited for
// its client for stallTime, longer than a client takes in a handshake. A new connection
// waits no longer than that, and then replaces the oldest.
const (
	stallTime  = time.Second
	stallCheck = 5 * time.Millisecond
)

// ConnectionLimits bound the connections of network clients.
type ConnectionLimits struct {
	// Unauthenticated bounds those on which no user is authenticated.
	Unauthenticated int
	// Users bounds those on which a user is authenticated, with a share for each user.
	// Long-lived connections to other servers may count towards it too.
	Users *fairshare.Limit
	// Idle bounds those of Users that have no request.
	Idle int
}

// DefaultConnectionLimits returns limits that leave descriptors for the process.
func DefaultConnectionLimits() ConnectionLimits { return connectionLimits(descriptors()) }

func connectionLimits(descriptors int) ConnectionLimits {
	clients := descriptors - max(descriptors/processShare, min(descriptors/2, processMin))
	unauthenticated := min(max(clients/unauthenticatedShare, unauthenticatedMin), unauthenticatedMax)
	users := max(clients-unauthenticated, unauthenticatedMin)
	return ConnectionLimits{Unauthenticated: unauthenticated, Users: fairshare.New(users, 0), Idle: min(idleMax, users)}
}

// Connections counts and bounds the connections of network clients. Users without limits
// (resource.User.Unlimited) are counted but not refused. Safe for concurrent use.
type Connections struct {
	limits          ConnectionLimits
	anonymous, idle *fairshare.Limit // of limits.Unauthenticated and limits.Idle

	mu              sync.Mutex
	unauthenticated list.List             // of *Connection, the oldest first
	idleOf          map[string]*list.List // of *Connection by user, the longest idle first
}

// NewConnections returns Connections with the limits.
func NewConnections(limits ConnectionLimits) *Connections {
	return &Connections{
		limits: limits, anonymous: fairshare.New(limits.Unauthenticated, 0), idle: fairshare.New(limits.Idle, 0), idleOf: map[string]*list.List{},
	}
}

// Users returns the limit of connections with a user.
func (a *Connections) Users() *fairshare.Limit { return a.limits.Users }

// Idle returns the number of connections with a user and without a request.
func (a *Connections) Idle() int { return a.idle.InUse() }

// Unauthenticated returns the limit of connections without a user.
func (a *Connections) Unauthenticated() *fairshare.Limit { return a.anonymous }

// Connection is a connection of a network client.
type Connection struct {
	all  *Connections
	conn net.Conn
	// hasUser: a user is authenticated on it.
	hasUser atomic.Bool
	// waiting is the Unix time in nanoseconds since when the server waits for the
	// client; 0: it does not. It is maintained while hasUser is false.
	waiting atomic.Int64
	refused atomic.Bool

	// Guarded by Connections.mu.
	user      string
	unlimited bool
	closed    bool
	inUnauth  *list.Element // in unauthenticated; nil: it is not
	inIdle    *list.Element // in idleOf[user]; nil: it is not
}

// Refuse records that a request on the connection is refused for its credentials, and
// reports whether an earlier one was.
func (c *Connection) Refuse() bool { return c.refused.Swap(true) }

// accept counts a connection once there is room for it.
func (a *Connections) accept(conn net.Conn) *Connection {
	c := &Connection{all: a, conn: conn}
	for start := time.Now(); ; <-time.After(stallCheck) {
		evicted, ok := a.tryAccept(c, time.Since(start) >= stallTime)
		if evicted != nil {
			_ = evicted.conn.Close()
		}
		if ok {
			return c
		}
	}
}

// tryAccept counts the connection if there is room or another one can be evicted: one
// that stalls or, with force, the oldest.
func (a *Connections) tryAccept(c *Connection, force bool) (evicted *Connection, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.anonymous.Take("") {
		if evicted = a.stalled(force); evicted == nil {
			return nil, false
		}
		a.remove(evicted)
		a.anonymous.Exceed("")
	}
	c.inUnauth = a.unauthenticated.PushBack(c)
	return evicted, true
}

func (a *Connections) stalled(force bool) *Connection {
	before := time.Now().Add(-stallTime).UnixNano()
	for e := a.unauthenticated.Front(); e != nil; e = e.Next() {
		c := e.Value.(*Connection)
		if since := c.waiting.Load(); force || since != 0 && since < before {
			return c
		}
	}
	return nil
}

// remove ends the counting of a connection; mu is held.
func (a *Connections) remove(c *Connection) {
	if c.closed {
		return
	}
	c.closed = true
	if c.inUnauth != nil {
		a.unauthenticated.Remove(c.inUnauth)
		a.anonymous.Release("")
		return
	}
	a.removeIdle(c)
	a.limits.Users.Release(c.user)
}

// removeIdle marks a connection as not idle; mu is held.
func (a *Connections) removeIdle(c *Connection) {
	if c.inIdle == nil {
		return
	}
	of := a.idleOf[c.user]
	of.Remove(c.inIdle)
	c.inIdle = nil
	if of.Len() == 0 {
		delete(a.idleOf, c.user)
	}
	a.idle.Release(c.user)
}

// HasUser reports whether a user is authenticated on the connection.
func (c *Connection) HasUser() bool { return c.hasUser.Load() }

// SetUser counts the connection for the first user that is authenticated on it. It reports
// false if the user has too many; an unlimited one never has.
func (c *Connection) SetUser(user string, unlimited bool) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.closed || c.inUnauth == nil {
		return true
	}
	if c.unlimited = unlimited; unlimited {
		c.all.limits.Users.Exceed(user)
	} else if !c.all.limits.Users.Take(user) {
		return false
	}
	c.all.unauthenticated.Remove(c.inUnauth)
	c.all.anonymous.Release("")
	c.inUnauth, c.user = nil, user
	c.hasUser.Store(true)
	return true
}

// setIdle marks the connection as idle. If its user has too many idle connections, it
// closes the one that has been idle for longest.
func (c *Connection) setIdle() {
	if !c.hasUser.Load() {
		return
	}
	if evicted := c.addIdle(); evicted != nil {
		_ = evicted.conn.Close()
	}
}

func (c *Connection) addIdle() (evicted *Connection) {
	a := c.all
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.closed || c.unlimited || c.inIdle != nil {
		return nil
	}
	of := a.idleOf[c.user]
	if !a.idle.Take(c.user) {
		if of != nil {
			evicted = of.Front().Value.(*Connection)
			a.remove(evicted)
			of = a.idleOf[c.user]
		}
		a.idle.Exceed(c.user)
	}
	if of == nil {
		of = list.New()
		a.idleOf[c.user] = of
	}
	c.inIdle = of.PushBack(c)
	return evicted
}

// setActive marks the connection as having a request.
func (c *Connection) setActive() {
	if !c.hasUser.Load() {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.removeIdle(c)
}

// close ends the counting of the connection. It may be called more than once.
func (c *Connection) close() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.remove(c)
}

// Listener returns a listener that counts its connections. A new connection waits until
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
