//go:build !linux && !darwin

package socket

import (
	"errors"
	"net"
)

// peerUID fails: the kernel is not known to report the uid of a peer.
func peerUID(*net.UnixConn) (int, error) {
	return -1, errors.New("the uid of a peer is not known on this system")
}
