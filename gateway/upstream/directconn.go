package upstream

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// errInformed says that a server sends informational responses without end.
var errInformed = errors.New("too many informational responses")

// maxInformed is how many informational responses one request may get.
const maxInformed = 5

// earlyAnswer is how long an answer may take, its body included, of a server that
// did not take the whole request.
const earlyAnswer = time.Second

// directConn is one connection of direct. One request at a time has it.
type directConn struct {
	net.Conn
	raw   net.Conn // below TLS; else the same
	pool  *direct
	br    *bufio.Reader // of the connection, by way of Read; nil: it was never used
	begun time.Time     // when it was made
	since time.Time     // when it became idle
	until time.Time     // until when it takes requests; zero: always
	// left is how many bytes the header of a response may still have; negative:
	// no header is being read.
	left int64
	got  bool // anything since the request was sent
	// missed: the server had closed the connection before the request came to it.
	missed bool
}

// ErrSwitched is of a server that begins to speak another protocol although
// nobody asked: what it sends would be taken for answers to other requests.
var ErrSwitched = errors.New("the server switched protocols although nobody asked")

var errHeaderTooLong = errors.New("the header of the response is too long")

func newDirectConn(d *direct, conn, raw net.Conn) *directConn {
	giveUpAfter(raw, d.silence)
	return &directConn{Conn: conn, raw: raw, pool: d, left: -1, begun: time.Now(), until: takesUntil(d.maxAge)}
}

// Read bounds what a header takes. What comes after it in the same piece counts
// as well; that it is no more than the reader's buffer.
func (c *directConn) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errHeaderTooLong
	}
	if c.left > 0 && int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.got = true
	}
	if c.left > 0 {
		c.left -= int64(n)
	}
	return n, err
}

// good reports whether the connection can be used again.
func (c *directConn) good() bool {
	return c.inTime() && (c.br == nil || c.br.Buffered() == 0) && alive(c.raw) && (c.raw == c.Conn || c.drained())
}

// inTime reports whether the connection, idle, may be used again as long as its
// server keeps it.
func (c *directConn) inTime() bool {
	now := time.Now()
	return now.Sub(c.since) < c.pool.idleTimeout && (c.until.IsZero() || now.Before(c.until))
}

// drained reports whether TLS has nothing that was received and not read: the
// rest of an answer that was longer than it said.
func (c *directConn) drained() bool {
	if c.Conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	var b [1]byte
	n, err := c.Conn.Read(b[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && c.Conn.SetReadDeadline(time.Time{}) == nil
}

// exchange sends a request and reads the header of its response. The response's
// body gives the connection back at its end. On an error the connection is
// closed, and state says how far the request got.
func (c *directConn) exchange(req *http.Request, message []byte) (res *http.Response, state progress, err error) {
	ctx := req.Context()
	// Ends what waits on the connection; whoever stops it too late has lost the
	// connection.
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if err != nil {
			stop()
			c.Close()
		}
	}()
	if c.br == nil {
		c.br = bufio.NewReader(c)
	}
	c.got, c.left = false, -1
	n, failed := c.Write(message)
	switch {
	case failed != nil && n == 0:
		return nil, unsent, failed
	case failed != nil && ctx.Err() != nil:
		return nil, sent, failed
	case failed != nil: // the server may have said why it takes no more
		_ = c.SetReadDeadline(time.Now().Add(earlyAnswer))
	}
	var plain *plainHead
	if res, plain, err = c.readHeader(req); err != nil {
		if failed != nil {
			return nil, sent, failed
		}
		if c.got {
			return nil, answering, err
		}
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		c.missed = ended && unacknowledged(c.raw) >= len(message)
		return nil, sent, err
	}
	if plain != nil {
		b := &plain.body
		b.conn, b.ctx, b.stop, b.keep, b.left = c, ctx, stop, failed == nil, res.ContentLength
		res.Body = b
		return res, answering, nil
	}
	body := &responseBody{conn: c, ctx: ctx, stop: stop, keep: !res.Close && failed == nil && !overfull(res), body: res.Body}
	if res.Body == http.NoBody {
		body.finish(true)
		return res, answering, nil
	}
	res.Body = body
	return res, answering, nil
}

// unacknowledged is how much of what was sent on a connection the peer has not
// acknowledged, in bytes, as far as that can be known. A server that closes a
// connection acknowledges with that what it has got: if nothing of a request, it has
// read nothing of it.
func unacknowledged(conn net.Conn) (n int) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return 0
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { n = queued(fd) })
	}
	return n
}

// overfull reports whether a response that has no body says that it has one:
// what the server then sends as such would be read as the next response.
func overfull(res *http.Response) bool {
	return res.StatusCode == http.StatusNoContent &&
		(len(res.TransferEncoding) > 0 || res.Header.Get("Content-Length") != "" && res.Header.Get("Content-Length") != "0")
}

// readHeader reads up to the body of the final response; plain, if not nil, is what
// that is part of.
func (c *directConn) readHeader(req *http.Request) (res *http.Response, plain *plainHead, err error) {
	for range maxInformed {
		c.left = maxHeader
		if plain, err = c.readPlain(req); err != nil {
			c.left = -1
			return nil, nil, err
		}
		if plain != nil {
			c.left = -1
			return &plain.res, plain, nil
		}
		res, err := http.ReadResponse(c.br, req)
		c.left = -1
		if err != nil {
			return nil, nil, err
		}
		if res.StatusCode >= 200 {
			return res, nil, nil
		}
		if res.StatusCode < 100 {
			return nil, nil, fmt.Errorf("the server answered with the status %d", res.StatusCode)
		}
		if res.StatusCode == http.StatusSwitchingProtocols {
			return nil, nil, ErrSwitched
		}
		if err := inform(req, res); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, errInformed
}

// inform hands an informational response to who asked for them.
func inform(req *http.Request, res *http.Response) error {
	if t := httptrace.ContextClientTrace(req.Context()); t != nil && t.Got1xxResponse != nil {
		TraceFrom(req.Context()).informing(res.Header)
		return t.Got1xxResponse(res.StatusCode, textproto.MIMEHeader(res.Header))
	}
	return nil
}

// responseBody is the body of a response. It is for one goroutine, except that
// Close may be called by another.
type responseBody struct {
	conn *directConn
	ctx  context.Context
	stop func() bool
	keep bool          // the connection can be used again afterwards
	body io.ReadCloser // nil: it is as long as left says
	left int64
	done atomic.Bool
}

func (b *responseBody) Read(p []byte) (int, error) {
	var n int
	var err error
	if b.body == nil {
		n, err = b.readFixed(p)
	} else {
		n, err = b.body.Read(p)
	}
	switch {
	case err == nil:
		return n, nil
	case err == io.EOF:
		b.finish(true)
		return n, err
	case b.ctx.Err() != nil:
		err = context.Cause(b.ctx)
	case !b.done.Load():
		b.conn.pool.broken()
	}
	b.finish(false)
	return n, err
}

// Close gives up what was not read.
func (b *responseBody) Close() error {
	b.finish(false)
	return nil
}

// finish lets go of the connection, once.
func (b *responseBody) finish(whole bool) {
	if !b.done.CompareAndSwap(false, true) {
		return
	}
	undisturbed := b.stop()
	if whole && b.keep && undisturbed && b.conn.br.Buffered() == 0 {
		b.conn.pool.put(b.conn)
		return
	}
	b.conn.Close()
}

// alive reports whether an idle connection is open and has nothing to read.
func alive(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var quiet bool
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && quiet
}
