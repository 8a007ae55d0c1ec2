package transport

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// setUserTimeout has the kernel end a TCP connection when what was sent on it is not
// acknowledged for d (TCP_USER_TIMEOUT, tcp(7)); 0 is the kernel's default, which also
// permits a receiver to have no room for longer. A firewall or NAT that has forgotten a
// connection drops what comes on it: without this, each request on such a connection
// would wait for all of its time. Over HTTP/2 a PING finds out.
func setUserTimeout(c net.Conn, d time.Duration) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		})
	}
}
