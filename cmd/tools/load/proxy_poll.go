package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"
)

// errAgain is of a read that would have to wait. TLS takes it for an error that
// passes.
var errAgain net.Error = againError{}

type againError struct{}

func (againError) Error() string   { return "nothing has come yet" }
func (againError) Timeout() bool   { return true }
func (againError) Temporary() bool { return true }

// polled is a TCP connection outside of Go's poller: who drives a load waits for
// all of its connections, and for the next request's time, in one call to the
// kernel, and no goroutine changes in between.
type polled struct{ fd int }

// dialPolled connects. The connection waits in reads until it is added to a
// poller.
func dialPolled(ctx context.Context, address string) (*polled, error) {
	at, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	c := &polled{fd}
	to := syscall.SockaddrInet4{Port: at.Port, Addr: [4]byte(at.IP.To4())}
	limit := syscall.NsecToTimeval(int64(dialTimeout))
	err = errors.Join(
		os.NewSyscallError("setsockopt", syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit)),
		os.NewSyscallError("setsockopt", syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &limit)),
		os.NewSyscallError("setsockopt", syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)),
		os.NewSyscallError("connect", syscall.Connect(fd, &to)), ctx.Err())
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *polled) Read(p []byte) (int, error) {
	for {
		n, err := syscall.Read(c.fd, p)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, errAgain
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0 && len(p) > 0:
			return 0, errBye
		default:
			return n, nil
		}
	}
}

// Write writes what a socket's buffer has room for, which is more than all
// requests under way.
func (c *polled) Write(p []byte) (int, error) {
	n, err := syscall.Write(c.fd, p)
	if err == nil && n < len(p) {
		err = syscall.EAGAIN
	}
	return max(n, 0), os.NewSyscallError("write", err)
}

func (c *polled) Close() error { return os.NewSyscallError("close", syscall.Close(c.fd)) }

// The rest of a net.Conn, of which TLS needs nothing.
func (c *polled) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *polled) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *polled) SetDeadline(time.Time) error      { return nil }
func (c *polled) SetReadDeadline(time.Time) error  { return nil }
func (c *polled) SetWriteDeadline(time.Time) error { return nil }

// poller waits for connections.
type poller struct {
	fd     int
	events [64]syscall.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &poller{fd: fd}, nil
}

// add has a connection be waited for, under a number. Its reads do not wait any
// more.
func (p *poller) add(c *polled, number int) error {
	if err := syscall.SetNonblock(c.fd, true); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	return os.NewSyscallError("epoll_ctl", syscall.EpollCtl(p.fd, syscall.EPOLL_CTL_ADD, c.fd,
		&syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(number)}))
}

// wait waits, no longer than a time, and returns the numbers of the connections
// on which something has come.
func (p *poller) wait(limit time.Duration) ([]syscall.EpollEvent, error) {
	// epoll_wait knows milliseconds only.
	const epollPwait2 = 441
	timeout := syscall.NsecToTimespec(int64(max(limit, 0)))
	// Go is not told that this thread waits: it would look every 20 µs whether
	// there is work for the thread's processor, and pass it on, which took half of
	// the time that the load has on the processor that it shares with the server.
	n, _, failed := syscall.RawSyscall6(epollPwait2, uintptr(p.fd), uintptr(unsafe.Pointer(&p.events[0])), uintptr(len(p.events)),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if failed != 0 && failed != syscall.EINTR {
		return nil, fmt.Errorf("wait for answers: %w", os.NewSyscallError("epoll_pwait2", failed))
	}
	if failed != 0 {
		n = 0
	}
	return p.events[:n], nil
}

func (p *poller) close() { _ = syscall.Close(p.fd) }

// exactTimers has the calling thread woken at the time that it asked for; the
// kernel's habit is to put wake-ups together that lie 50 µs apart.
func exactTimers() {
	const setTimerSlack = 29 // PR_SET_TIMERSLACK
	_, _, _ = syscall.Syscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0)
}
