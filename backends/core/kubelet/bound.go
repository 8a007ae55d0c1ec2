package kubelet

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"

	"k8s.io/streaming/pkg/httpstream"
)

// maxUpgradeHeader bounds what is read of a connection before the client's is joined with it,
// in bytes: the header of the response, which is kept in memory, and a TLS handshake.
const maxUpgradeHeader = 1 << 20

var errLargeHeader = errors.New("the response to the upgrade has too large a header")

// upgrade is a request for another protocol. joined is set when the client's connection is
// taken over.
type upgrade struct{ joined atomic.Bool }

type upgradeKey struct{}

// bounded returns a request and its writer. If the request is for another protocol,
// maxUpgradeHeader bounds the connections that are made for it.
func bounded(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	if !httpstream.IsUpgradeRequest(r) {
		return w, r
	}
	u := &upgrade{}
	return joining{w, u}, r.WithContext(context.WithValue(r.Context(), upgradeKey{}, u))
}

// joining is the writer of an upgrade.
type joining struct {
	http.ResponseWriter
	upgrade *upgrade
}

// Unwrap is for http.ResponseController.
func (j joining) Unwrap() http.ResponseWriter { return j.ResponseWriter }

// Flush implements http.Flusher.
func (j joining) Flush() { _ = http.NewResponseController(j.ResponseWriter).Flush() }

// Hijack implements http.Hijacker.
func (j joining) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	j.upgrade.joined.Store(true)
	return http.NewResponseController(j.ResponseWriter).Hijack()
}

// boundConn bounds a connection that was made for the upgrade of ctx.
func boundConn(ctx context.Context, conn net.Conn) net.Conn {
	if u, ok := ctx.Value(upgradeKey{}).(*upgrade); ok {
		return &boundedConn{Conn: conn, upgrade: u}
	}
	return conn
}

// boundedConn fails after maxUpgradeHeader bytes unless the upgrade is joined.
type boundedConn struct {
	net.Conn
	upgrade *upgrade
	read    int // by one goroutine at a time
}

// Read implements net.Conn.
func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.upgrade.joined.Load() {
		if c.read += n; c.read > maxUpgradeHeader {
			return 0, errLargeHeader
		}
	}
	return n, err
}
