package supervise

import "syscall"

// childAttributes has the kernel kill the child when the forking thread ends.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
