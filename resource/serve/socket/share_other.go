//go:build !linux && !darwin

package socket

import (
	"errors"
	"syscall"
)

// sharePort fails: the system is not known to share ports among listeners.
func sharePort(string, string, syscall.RawConn) error {
	return errors.New("ports cannot be shared on this system")
}
