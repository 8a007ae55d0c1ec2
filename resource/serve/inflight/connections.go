package inflight

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
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
	// PerAddress bounds those from one IP address; 0: no bound.
	PerAddress int
}

// Bounds are the configurable part of ConnectionLimits. 0 is the default.
type Bounds struct {
	// All bounds the connections of network clients in all. Default: the descriptors that the
	// process may have open, without those for its own use, which is also the most.
	All uint
	// Unauthenticated is the part of All for connections without a user. Default: a twelfth, 512 at most.
	Unauthenticated uint
	// PerAddress bounds those from one IP address. Default: no bound.
	PerAddress uint
}

// Limits returns the limits for this process, or what is wrong with the bounds.
func (b Bounds) Limits() (ConnectionLimits, error) { return b.limits(descriptors()) }

func (b Bounds) limits(descriptors int) (ConnectionLimits, error) {
	clients := descriptors - max(descriptors/processShare, min(descriptors/2, processMin))
	if b.All > uint(clients) {
		return ConnectionLimits{}, fmt.Errorf("--max-connections=%d: the process may have %d open files, enough for %d connections; raise that limit (ulimit -n)", b.All, descriptors, clients)
	}
	clients = cmp.Or(int(b.All), clients)
	if b.Unauthenticated != 0 && b.Unauthenticated >= uint(clients) {
		return ConnectionLimits{}, fmt.Errorf("--max-unauthenticated-connections=%d: must be less than the %d connections in all", b.Unauthenticated, clients)
	}
	least := min(unauthenticatedMin, clients/2)
	unauthenticated := cmp.Or(int(b.Unauthenticated), min(max(clients/unauthenticatedShare, least), unauthenticatedMax))
	users := max(clients-unauthenticated, 1)
	return ConnectionLimits{
		Unauthenticated: unauthenticated, Users: fairshare.New(users, 0), Idle: min(idleMax, users), PerAddress: int(b.PerAddress),
	}, nil
}

// Connections counts and bounds the connections of network clients. Users without limits
// (resource.User.Unlimited) are counted but not refused. Safe for concurrent use.
type Connections struct {
	limits          ConnectionLimits
	anonymous, idle *fairshare.Limit // of limits.Unauthenticated and limits.Idle
	addresses       *fairshare.Limit // of limits.PerAddress; it has addresses for users
	rejected        atomic.Int64     // for their addresses

	mu              sync.Mutex
	unauthenticated list.List             // of *Connection, the oldest first
	idleOf          map[string]*list.List // of *Connection by user, the longest idle first
}

// NewConnections returns Connections with the limits.
func NewConnections(limits ConnectionLimits) *Connections {
	return &Connections{
		limits: limits, anonymous: fairshare.New(limits.Unauthenticated, 0), idle: fairshare.New(limits.Idle, 0),
		addresses: fairshare.New(0, limits.PerAddress), idleOf: map[string]*list.List{},
	}
}

// Users returns the limit of connections with a user.
func (a *Connections) Users() *fairshare.Limit { return a.limits.Users }

// Idle returns the number of connections with a user and without a request.
func (a *Connections) Idle() int { return a.idle.InUse() }

// Unauthenticated returns the limit of connections without a user.
func (a *Connections) Unauthenticated() *fairshare.Limit { return a.anonymous }

// Rejected returns the number of connections that were closed because there were too many from their
// addresses.
func (a *Connections) Rejected() int64 { return a.rejected.Load() }

// Connection is a connection of a network client.
type Connection struct {
	all     *Connections
	conn    net.Conn
	address string // in Connections.addresses
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

// addressOf returns for what limits.PerAddress counts a connection: its IP address, or of an IPv6
// address the network of 64 bits, all of which a client may have.
func addressOf(conn net.Conn) string {
	peer, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return ""
	}
	if address := peer.Addr().Unmap(); address.Is4() {
		return address.String()
	}
	network, _ := peer.Addr().WithZone("").Prefix(64) // of an IPv6 address without a zone
	return network.String()
}

// accept counts a connection once there is room for it; nil: there are too many from its address.
func (a *Connections) accept(conn net.Conn) *Connection {
	c := &Connection{all: a, conn: conn}
	if a.limits.PerAddress > 0 {
		if c.address = addressOf(conn); !a.addresses.Take(c.address) {
			a.rejected.Add(1)
			return nil
		}
	}
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
	if a.limits.PerAddress > 0 {
		a.addresses.Release(c.address)
	}
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
// there is room for it; one of too many from its address is closed.
func (a *Connections) Listener(l net.Listener) net.Listener { return &listener{l, a} }

type listener struct {
	net.Listener
	connections *Connections
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if counted := l.connections.accept(conn); counted != nil {
			return &countedConn{Conn: conn, counted: counted}, nil
		}
		_ = conn.Close()
	}
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
