//go:build linux || darwin

package socket

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// sharePort sets SO_REUSEPORT, for net.ListenConfig.
func sharePort(_, _ string, conn syscall.RawConn) error {
	var failed error
	if err := conn.Control(func(fd uintptr) {
		failed = os.NewSyscallError("setsockopt", unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	}); err != nil {
		return err
	}
	return failed
}
