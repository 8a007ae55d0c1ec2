package serve

import (
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// gatherRoom is how many bytes are held back at most. What is longer goes out at
// once, together with what is held.
const gatherRoom = 2 << 10

// gatherer accepts connections that write small pieces together where HTTP/2 is
// spoken. net/http sends the header of an answer there by itself, before it asks
// for the body: two system calls, packets and wake-ups of the client for each
// answer.
type gatherer struct {
	net.Listener
	clients *connections
}

func (l gatherer) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gathering{Conn: conn, client: l.clients.admit(conn)}, nil
}

// gathering is a connection below TLS, which writes one piece after the other. A
// small one is held back until a goroutine that is begun for it runs: on a busy
// processor after those that were ready to run before, among them who has the body
// of the answer at hand; on an idle one at once. With one processor it made 13 % of
// a proxied request, and more of it the busier that was. An error is that of the
// next write.
type gathering struct {
	net.Conn
	client *client
	on     atomic.Bool // set before the handshake's answer is written

	mu   sync.Mutex
	held *[gatherRoom]byte // nil: nothing is
	n    int               // of them
	due  bool              // somebody is about to write them
	err  error
}

// gatherHTTP2 begins to gather if the client will speak HTTP/2: the server prefers
// it.
func gatherHTTP2(hello *tls.ClientHelloInfo) {
	if c, ok := hello.Conn.(*gathering); ok {
		c.on.Store(slices.Contains(hello.SupportedProtos, "h2"))
	}
}

var gatherRooms = sync.Pool{New: func() any { return new([gatherRoom]byte) }}

func (c *gathering) Write(b []byte) (int, error) {
	if !c.on.Load() {
		return c.Conn.Write(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	if c.n+len(b) > gatherRoom {
		if err := c.flush(b); err != nil {
			return 0, err
		}
		return len(b), nil
	}
	if c.held == nil {
		c.held = gatherRooms.Get().(*[gatherRoom]byte)
	}
	c.n += copy(c.held[c.n:], b)
	if !c.due {
		c.due = true
		go c.later()
	}
	return len(b), nil
}

// later writes what is held, at its turn.
func (c *gathering) later() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.due = false
	_ = c.flush(nil) // it is kept
}

// flush writes what is held, and more; mu is held.
func (c *gathering) flush(more []byte) error {
	if c.err != nil || c.n == 0 && more == nil {
		return c.err
	}
	switch {
	case c.n == 0:
		_, c.err = c.Conn.Write(more)
	case more == nil:
		_, c.err = c.Conn.Write(c.held[:c.n])
	default:
		pieces := net.Buffers{c.held[:c.n], more}
		_, c.err = pieces.WriteTo(c.Conn)
	}
	if c.held != nil {
		gatherRooms.Put(c.held)
		c.held, c.n = nil, 0
	}
	return c.err
}

// SetWriteDeadline is for what is written from now on: TLS says goodbye, and sets
// one that has passed.
func (c *gathering) SetWriteDeadline(t time.Time) error {
	c.finish()
	return c.Conn.SetWriteDeadline(t)
}

func (c *gathering) SetDeadline(t time.Time) error {
	c.finish()
	return c.Conn.SetDeadline(t)
}

// Read reads from the client.
func (c *gathering) Read(b []byte) (int, error) {
	defer c.client.reads()()
	return c.Conn.Read(b)
}

// Close writes what is held.
func (c *gathering) Close() error {
	c.client.isClosed()
	c.finish()
	return c.Conn.Close()
}

// finishTime is how long a client may take for what is held when its connection is
// closed, in which others wait to be closed.
const finishTime = 100 * time.Millisecond

// finish writes what is held, before the deadline for writes is another; unless a
// write is under way: that may be stuck until the connection is closed.
func (c *gathering) finish() {
	if !c.on.Load() || !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	if c.n > 0 {
		_ = c.Conn.SetWriteDeadline(time.Now().Add(finishTime))
		_ = c.flush(nil)
	}
}
