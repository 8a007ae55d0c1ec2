package supervise

import "syscall"

// ChildAttributes has the kernel kill the child when the forking thread ends.
func ChildAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
