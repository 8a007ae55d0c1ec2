//go:build !linux

package supervise

import "syscall"

// ChildAttributes: without a parent-death signal the lifeline does it alone.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
