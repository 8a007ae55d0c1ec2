package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// The protocols that clients speak with a proxy.
const (
	http1     = "h1"
	http2Name = "h2"
)

// front is a server that the proxy benchmark asks: a proxy, or the server
// behind all of them.
type front struct {
	name    string
	address string
	tls     *tls.Config
	// certificate is its own, in DER, if it is a process of this program.
	certificate []byte
	pid         int  // 0: nobody's CPU is read
	unscheduled bool // it was started so (proxyRun.unscheduled)
	stop        func()
}

// dial connects for one of the protocols.
func (f *front) dial(ctx context.Context, protocol string) (*tls.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	conn, err := d.DialContext(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", f.name, err)
	}
	return f.secure(ctx, conn, protocol)
}

// dialTimeout bounds connecting, and each wait of the handshake after it.
const dialTimeout = 5 * time.Second

// secure has a connection speak TLS and one of the protocols in it; it closes
// one that does not.
func (f *front) secure(ctx context.Context, conn net.Conn, protocol string) (*tls.Conn, error) {
	conf := f.tls.Clone()
	conf.NextProtos = []string{map[string]string{http1: "http/1.1", http2Name: "h2"}[protocol]}
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(f.address) // it was connected to
	}
	secured := tls.Client(conn, conf)
	err := secured.HandshakeContext(ctx)
	if got := secured.ConnectionState().NegotiatedProtocol; err == nil && got != conf.NextProtos[0] && (got != "" || protocol != http1) {
		err = fmt.Errorf("it speaks %q and not %q", got, conf.NextProtos[0])
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("connect to %s: %w", f.name, err)
	}
	return secured, nil
}

// fields are the header of a request, pseudo-header fields first; the same for
// every front.
type fields [][2]string

func requestFields(path, token string, more ...[2]string) fields {
	all := fields{
		{":method", "GET"}, {":scheme", "https"}, {":authority", "localhost"}, {":path", path},
		{"accept", jsonType}, {"accept-encoding", "gzip"}, {"user-agent", "portico-load"},
	}
	if token != "" {
		all = append(all, [2]string{"authorization", "Bearer " + token})
	}
	return append(all, more...)
}

// text is the request in HTTP/1.1.
func (f fields) text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: localhost\r\n", f[3][1])
	for _, field := range f[4:] {
		fmt.Fprintf(&b, "%s: %s\r\n", field[0], field[1])
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// lane1 is an HTTP/1.1 connection that one goroutine uses. It takes as little
// of the processor as it can: net/http's client would take more than the proxy.
type lane1 struct {
	conn    net.Conn
	request []byte
	code    int // that is expected
	ended   func(began time.Time, bytes int64) error

	busy   bool // an answer is to come
	began  time.Time
	in     []byte // of which the first have bytes have come
	have   int
	length int64 // of the body; -1: its header has not come yet
	left   int64 // of the body, to come
}

// answerRoom bounds the header of an answer.
const answerRoom = 16 << 10

func newLane1(conn net.Conn, f fields, ended func(began time.Time, bytes int64) error) *lane1 {
	return &lane1{conn: conn, request: f.text(), code: 200, ended: ended, in: make([]byte, answerRoom)}
}

func (l *lane1) room() bool { return !l.busy }

// send sends the request, as one that was to begin at a time.
func (l *lane1) send(at time.Time) error {
	l.busy, l.began, l.have, l.length = true, at, 0, -1
	_, err := l.conn.Write(l.request)
	return err
}

func (l *lane1) flush() error { return nil }

// receive reads to the end of the answer, or errAgain.
func (l *lane1) receive() error {
	for l.busy {
		n, err := l.conn.Read(l.in[l.have:])
		if n > 0 {
			if err := l.take(n); err != nil {
				return err
			}
		} else if err != nil {
			return err
		}
	}
	return nil
}

// take takes n bytes that have come.
func (l *lane1) take(n int) error {
	if l.length < 0 {
		l.have += n
		end := bytes.Index(l.in[:l.have], []byte("\r\n\r\n"))
		if end < 0 {
			if l.have == len(l.in) {
				return errors.New("answered with too long a header")
			}
			return nil
		}
		var err error
		if l.length, err = l.readHeader(l.in[:end+2]); err != nil {
			return err
		}
		n = l.have - (end + 4)
		l.have, l.left = 0, l.length // what comes now is not kept
	}
	if l.left -= int64(n); l.left < 0 {
		return errors.New("the answer is longer than it says")
	}
	if l.left > 0 {
		return nil
	}
	l.busy = false
	return l.ended(l.began, l.length)
}

var lengthField = []byte("content-length:")

// readHeader returns the length of the body, which has to be said.
func (l *lane1) readHeader(header []byte) (int64, error) {
	status, header, _ := bytes.Cut(header, []byte("\r\n"))
	if len(status) < 12 || !bytes.HasPrefix(status, []byte("HTTP/1.1 ")) || string(status[9:12]) != strconv.Itoa(l.code) {
		return 0, fmt.Errorf("answered %q", status)
	}
	for line := range bytes.Lines(header) {
		if len(line) <= len(lengthField) || !bytes.EqualFold(line[:len(lengthField)], lengthField) {
			continue
		}
		length, err := strconv.ParseInt(string(bytes.TrimSpace(line[len(lengthField):])), 10, 32)
		if err != nil || length < 0 {
			return 0, fmt.Errorf("answered with a bad length: %q", line)
		}
		return length, nil
	}
	if l.code == 304 {
		return 0, nil
	}
	return 0, errors.New("answered without a length")
}

// errBye is a connection that ended although nobody asked.
var errBye = fmt.Errorf("the connection ended: %w", io.ErrUnexpectedEOF)
