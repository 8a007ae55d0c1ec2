package upstream

import (
	"bufio"
	"io"
	"net"
	"sync"
	"syscall"
)

// A watch holds its connection for hours and waits nearly all of that time. On a
// connection without TLS it does so without a buffer to speak of: what it reads from
// holds a line of HTTP, and a large one is borrowed by whoever finds that something
// has come, until it is read.

const (
	// leanBuffer is what a long-running answer is read by, in bytes; of the borrowed
	// buffer it takes as much at a time.
	leanBuffer = 256
	// comeBuffer is how much of what has come is read at once, in bytes.
	comeBuffer = 16 << 10
)

// comeBuffers are borrowed.
var comeBuffers = sync.Pool{New: func() any { b := make([]byte, comeBuffer); return &b }}

// leanConn reads a connection without waiting with a buffer in hand. One goroutine
// at a time reads.
type leanConn struct {
	raw    syscall.RawConn
	try    func(fd uintptr) bool
	buffer *[]byte // borrowed; nil: nothing is there
	come   []byte  // the part of it that was not read yet
	err    error   // of the last try
}

// newLeanConn returns nil if the connection cannot be read so.
func newLeanConn(conn net.Conn) *leanConn {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	l := &leanConn{raw: raw}
	l.try = l.tryRead
	return l
}

// tryRead reads what has come; false if that is nothing yet.
func (l *leanConn) tryRead(fd uintptr) bool {
	buffer := comeBuffers.Get().(*[]byte)
	for {
		n, err := syscall.Read(int(fd), *buffer)
		switch {
		case err == syscall.EINTR:
			continue
		case n > 0:
			l.buffer, l.come, l.err = buffer, (*buffer)[:n], nil
			return true
		case err == nil:
			l.err = io.EOF
		default:
			l.err = err
		}
		comeBuffers.Put(buffer)
		return err != syscall.EAGAIN
	}
}

// Read waits for something, and reads of it.
func (l *leanConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if l.buffer == nil {
		if err := l.raw.Read(l.try); err != nil {
			return 0, err
		}
		if l.buffer == nil {
			return 0, l.err
		}
	}
	n := copy(p, l.come)
	if l.come = l.come[n:]; len(l.come) == 0 {
		comeBuffers.Put(l.buffer)
		l.buffer, l.come = nil, nil
	}
	return n, nil
}

// readLean has the connection be read with little in hand, or with a buffer of its
// own again. Nothing may be left of an answer before.
func (c *directConn) readLean(lean bool) {
	if lean && c.raw == c.Conn {
		if c.lean == nil {
			if c.lean = newLeanConn(c.raw); c.lean != nil {
				c.br = bufio.NewReaderSize(c, leanBuffer)
			}
		}
	} else if c.lean != nil {
		c.lean, c.br = nil, nil
	}
	if c.br == nil {
		c.br = bufio.NewReader(c)
	}
}

// hasMore reports whether there is anything that was received and not read.
func (c *directConn) hasMore() bool {
	return c.br != nil && c.br.Buffered() > 0 || c.lean != nil && c.lean.buffer != nil
}
