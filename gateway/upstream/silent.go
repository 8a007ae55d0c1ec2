package upstream

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// A way to a server can lose its connections without a word: a firewall or NAT
// that forgets its flows drops what comes on them and takes new ones. HTTP/2
// connections are found out by ping, whatever goes on. On HTTP/1.1 there is
// nothing to ask with, and each request that takes one of the idle connections
// would wait for all of its time. So
//
//   - the kernel gives up a connection whose peer does not acknowledge what was
//     sent (silence, where there is TCP_USER_TIMEOUT): a request that may go
//     twice goes by a new connection then, as an attempt of its own and out of the
//     budget, as after any connection that was used before and breaks;
//   - one that was used before, and on which nothing came for that long, or for
//     half of it until the client gave up, takes with it all that were idle since
//     before the request was sent. Nothing has shown since that they are alive,
//     and if the server is only slow it costs connections that nobody needed
//     meanwhile.

// silence is how long a server's kernel may be silent about what was sent to it:
// as long as an HTTP/2 connection may.
const silence = pingAfter + pingTimeout

// giveUpAfter has the kernel end the connection when what was sent is not
// acknowledged for so long; 0: when the kernel likes. Where that cannot be, or the
// connection is not TCP, it changes nothing.
//
// It is for connections on which messages are short: where the peer has no room
// for more, the time is that for making room.
func giveUpAfter(conn net.Conn, d time.Duration) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { setUserTimeout(fd, d) })
	}
}

// silent takes into account that nothing came on a connection that was used before,
// since a request was sent by it; err is what ended the wait.
func (d *direct) silent(sent time.Time, err error) {
	if time.Since(sent) < pingAfter && !timedOut(err) {
		return
	}
	d.closeSome(func(c *directConn) bool { return c.since.Before(sent) })
	d.broken()
}

// timedOut reports whether the kernel gave the connection up.
func timedOut(err error) bool {
	return errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH)
}

// closeSome closes idle connections.
func (d *direct) closeSome(which func(*directConn) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kept := d.idle[:0]
	for _, c := range d.idle {
		if which(c) {
			c.Close()
		} else {
			kept = append(kept, c)
		}
	}
	clear(d.idle[len(kept):])
	d.idle = kept
}
