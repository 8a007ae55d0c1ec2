//go:build !linux

package supervise

import "syscall"

// childAttributes: without a parent-death signal the lifeline does it alone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
