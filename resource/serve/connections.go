package serve

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"portico/resource"
	"portico/resource/fairshare"
)

// Parts of the descriptors that a process may have open (RLIMIT_NOFILE).
const (
	// insidePart of them, and at least insideLeast where that is no more than half, is
	// kept for what the process itself opens: connections to servers and etcd, files.
	insidePart  = 8
	insideLeast = 2048
	// strangersPart of the others is for connections on which nobody is authenticated
	// yet, within bounds: each takes about 56 KB after its handshake, and a header more.
	strangersPart                 = 12
	strangersLeast, strangersMost = 64, 512
	// idleMost bounds the connections without a request on which users are
	// authenticated.
	idleMost = 2048
)

// manyDescriptors is assumed where the limit is not known.
const manyDescriptors = 1 << 16

// A connection on which nobody is authenticated makes room for another if it has kept
// the server waiting for stalled: a client in a handshake answers sooner. Accepting
// waits no longer than that for one, and then ends the oldest.
const (
	stalled    = time.Second
	stallCheck = 5 * time.Millisecond
)

// connections bounds the connections of network clients, so that descriptors are left
// for whoever comes next. Users share those on which they are authenticated
// (fairshare.Limit); users without limits (resource.User.Unlimited) are not refused.
// Of connections on which nobody is authenticated, one that stalls is ended when
// another comes.
//
// Safe for concurrent use.
type connections struct {
	strangersMost int
	users, idle   *fairshare.Limit

	mu        sync.Mutex
	strangers list.List             // of *client, the oldest first
	idleOf    map[string]*list.List // of *client by user, the longest idle first
}

// NewConnectionLimit makes the limit that users share of the connections of clients
// and, if Config.Connections is used for those too, of connections to other servers that
// last. It is what the descriptors of the process allow.
func NewConnectionLimit() *fairshare.Limit {
	_, users := connectionBounds(descriptors())
	return fairshare.New(users, 0)
}

// connectionBounds are those of connections without and with a user.
func connectionBounds(descriptors int) (strangers, users int) {
	outside := descriptors - max(descriptors/insidePart, min(descriptors/2, insideLeast))
	strangers = min(max(outside/strangersPart, strangersLeast), strangersMost)
	return strangers, max(outside-strangers, strangersLeast)
}

// newConnections returns bounds for a process that may have so many descriptors; users
// is the limit that users share.
func newConnections(descriptors int, users *fairshare.Limit) *connections {
	strangers, _ := connectionBounds(descriptors)
	return &connections{
		strangersMost: strangers, users: users, idle: fairshare.New(min(idleMost, users.Max()), 0), idleOf: map[string]*list.List{},
	}
}

// client is a connection of a network client.
type client struct {
	all  *connections
	conn net.Conn
	// known: a user is authenticated on it.
	known atomic.Bool
	// waits is since when the server waits for the client, in Unix nanoseconds; 0: it
	// does not. It is kept while known is false.
	waits atomic.Int64

	// Guarded by connections.mu.
	user      string
	unlimited bool
	closed    bool
	place     *list.Element // in strangers; nil: it is in none
	idle      *list.Element // in idleOf[user]; nil: it is not
}

// admit counts a connection that was accepted, once there is room for it.
func (a *connections) admit(conn net.Conn) *client {
	c := &client{all: a, conn: conn}
	for begun := time.Now(); ; <-time.After(stallCheck) {
		victim, room := a.tryAdmit(c, time.Since(begun) >= stalled)
		if victim != nil {
			_ = victim.conn.Close()
		}
		if room {
			return c
		}
	}
}

// tryAdmit counts the connection if there is room, or if another can be ended: one that
// stalls or, where it must be, the oldest.
func (a *connections) tryAdmit(c *client, must bool) (victim *client, room bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.strangers.Len() >= a.strangersMost {
		if victim = a.stalledStranger(must); victim == nil {
			return nil, false
		}
		a.forget(victim)
	}
	c.place = a.strangers.PushBack(c)
	return victim, true
}

func (a *connections) stalledStranger(must bool) *client {
	before := time.Now().Add(-stalled).UnixNano()
	for e := a.strangers.Front(); e != nil; e = e.Next() {
		c := e.Value.(*client)
		if since := c.waits.Load(); must || since != 0 && since < before {
			return c
		}
	}
	return nil
}

// forget gives back what a connection holds; mu is held.
func (a *connections) forget(c *client) {
	if c.closed {
		return
	}
	c.closed = true
	if c.place != nil {
		a.strangers.Remove(c.place)
		return
	}
	a.active(c)
	a.users.Release(c.user)
}

// active has a connection be idle no more; mu is held.
func (a *connections) active(c *client) {
	if c.idle == nil {
		return
	}
	of := a.idleOf[c.user]
	of.Remove(c.idle)
	c.idle = nil
	if of.Len() == 0 {
		delete(a.idleOf, c.user)
	}
	a.idle.Release(c.user)
}

// limitConnections answers 429, and has the connection end, where its user has more
// than its share of connections.
func (s *Server) limitConnections(w http.ResponseWriter, r *http.Request) bool {
	c, x := clientFrom(r.Context()), exchangeFrom(r.Context())
	if c == nil || c.known.Load() {
		return true
	}
	user := x.action.User // who is authenticated, whoever the request acts as
	if user.Name == resource.Anonymous || c.authenticated(user, s.cfg.ManyUsers || user.Unlimited()) {
		return true
	}
	x.closing.Store(true)
	s.tooMany(w, r, resource.ActionFrom(r.Context()))
	return false
}

// authenticated counts the connection for the first user that is authenticated on it.
// It reports whether that user may have one more.
func (c *client) authenticated(user *resource.User, unlimited bool) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.closed || c.place == nil {
		return true
	}
	if c.unlimited = unlimited; unlimited {
		c.all.users.Exceed(user.Name)
	} else if !c.all.users.Take(user.Name) {
		return false
	}
	c.all.strangers.Remove(c.place)
	c.place, c.user = nil, user.Name
	c.known.Store(true)
	return true
}

// isIdle takes down that no request is under way on the connection. A user with more
// idle connections than its share has the one ended that has been idle for longest.
func (c *client) isIdle() {
	if !c.known.Load() {
		return
	}
	if victim := c.rest(); victim != nil {
		_ = victim.conn.Close()
	}
}

func (c *client) rest() (victim *client) {
	a := c.all
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.closed || c.unlimited || c.idle != nil {
		return nil
	}
	of := a.idleOf[c.user]
	if !a.idle.Take(c.user) {
		if of != nil {
			victim = of.Front().Value.(*client)
			a.forget(victim)
			of = a.idleOf[c.user]
		}
		a.idle.Exceed(c.user)
	}
	if of == nil {
		of = list.New()
		a.idleOf[c.user] = of
	}
	c.idle = of.PushBack(c)
	return victim
}

// isActive takes down that a request has begun.
func (c *client) isActive() {
	if !c.known.Load() {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.active(c)
}

// isClosed takes down that the connection is closed. It may be called again.
func (c *client) isClosed() {
	if c == nil {
		return
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.forget(c)
}

// reads takes down that the server waits for the client, until the returned function
// is called.
func (c *client) reads() (done func()) {
	if c == nil || c.known.Load() {
		return func() {}
	}
	c.waits.Store(time.Now().UnixNano())
	return c.came
}

func (c *client) came() { c.waits.Store(0) }

type clientKey struct{}

// withClient puts the client on the connection's context.
func withClient(ctx context.Context, conn net.Conn) context.Context {
	if c := clientOf(conn); c != nil {
		return context.WithValue(ctx, clientKey{}, c)
	}
	return ctx
}

// clientFrom returns the client of a request; nil on a unix socket.
func clientFrom(ctx context.Context) *client {
	c, _ := ctx.Value(clientKey{}).(*client)
	return c
}

func clientOf(conn net.Conn) *client {
	if t, ok := conn.(*tls.Conn); ok {
		if counted, ok := t.NetConn().(*clientConn); ok {
			return counted.client
		}
	}
	return nil
}

// stateOfClient is a http.Server's ConnState.
func stateOfClient(conn net.Conn, state http.ConnState) {
	switch c := clientOf(conn); {
	case c == nil:
	case state == http.StateIdle:
		c.isIdle()
	case state == http.StateActive:
		c.isActive()
	}
}

// unauthenticated is the metrics.Bound of connections on which no user is
// authenticated.
type unauthenticated struct{ *connections }

// InUse implements metrics.Bound.
func (u unauthenticated) InUse() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.strangers.Len()
}

// Max implements metrics.Bound.
func (u unauthenticated) Max() int { return u.strangersMost }
