//go:build !linux

package transport

import (
	"net"
	"time"
)

// setUserTimeout does nothing where there is no TCP_USER_TIMEOUT.
func setUserTimeout(net.Conn, time.Duration) {}
