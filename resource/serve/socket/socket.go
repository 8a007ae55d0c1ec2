// Package socket listens on unix sockets, takes the uid of each client from the kernel, takes the
// sockets that systemd passes to a process, and binds ports that processes share.
//
// Runs in: gateway, core, crd, portico up.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"syscall"

	"portico/resource/authn"
)

// Listen binds a unix socket with mode 0600. It replaces the socket of a process that has
// died; a socket that is in use is an error, and so is any other file. If ownUID is set,
// connections of processes under another uid than this process's effective one are closed.
func Listen(path string, ownUID bool, log *slog.Logger) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = unix.Close()
		return nil, err
	}
	return withPeers(unix, ownUID, log), nil
}

// withPeers asks for the uid of each client of a socket.
func withPeers(unix *net.UnixListener, ownUID bool, log *slog.Logger) *listener {
	l := &listener{UnixListener: unix, log: log}
	if ownUID {
		uid := os.Geteuid()
		l.only = &uid
	}
	return l
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
		return fmt.Errorf("another process listens on %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("connect to %s, to see whether another process listens: %w", path, err)
	}
	return os.Remove(path)
}

// listener accepts connections and asks the kernel for the uid of their peers.
type listener struct {
	*net.UnixListener
	only *int // the uid to accept; nil: any
	log  *slog.Logger
}

// peerConn is a connection and the uid of its peer.
type peerConn struct {
	*net.UnixConn
	uid int
}

// Accept returns the next connection of a uid that is accepted.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := peerUID(conn)
		if err == nil && (l.only == nil || uid == *l.only) {
			return &peerConn{UnixConn: conn, uid: uid}, nil
		}
		if err != nil && l.only == nil {
			return conn, nil // the client has no uid, so no identity follows from it
		}
		l.log.Warn("connection of another user closed", "socket", l.Addr().String(), "uid", uid, "err", err)
		_ = conn.Close()
	}
}

// ConnContext is for http.Server: it adds the peer's uid to the context of a connection,
// for authn.PeerUID. The socket may be below other connections, such as TLS.
func ConnContext(ctx context.Context, conn net.Conn) context.Context {
	for {
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = outer.NetConn()
	}
	if peer, ok := conn.(*peerConn); ok {
		return authn.WithPeerUID(ctx, peer.uid)
	}
	return ctx
}
