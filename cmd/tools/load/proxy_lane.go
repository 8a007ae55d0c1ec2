package main

import (
	"bufio"
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
	pid         int // 0: nobody's CPU is read
	stop        func()
}

// dial connects for one of the protocols.
func (f *front) dial(ctx context.Context, protocol string) (*tls.Conn, error) {
	conf := f.tls.Clone()
	conf.NextProtos = []string{map[string]string{http1: "http/1.1", http2Name: "h2"}[protocol]}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: conf}
	conn, err := d.DialContext(ctx, "tcp", f.address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", f.name, err)
	}
	secured := conn.(*tls.Conn)
	if got := secured.ConnectionState().NegotiatedProtocol; got != conf.NextProtos[0] && (got != "" || protocol != http1) {
		conn.Close()
		return nil, fmt.Errorf("connect to %s: it speaks %q and not %q", f.name, got, conf.NextProtos[0])
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
	br      *bufio.Reader
	request []byte
	code    int // that is expected
}

func newLane1(conn net.Conn, f fields) *lane1 {
	return &lane1{conn: conn, br: bufio.NewReaderSize(conn, 16<<10), request: f.text(), code: 200}
}

// exchange sends the request and reads the answer to its end; it returns the
// length of the body.
func (l *lane1) exchange() (int64, error) {
	if _, err := l.conn.Write(l.request); err != nil {
		return 0, err
	}
	status, err := l.br.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(status) < 12 || !bytes.HasPrefix(status, []byte("HTTP/1.1 ")) || string(status[9:12]) != strconv.Itoa(l.code) {
		return 0, fmt.Errorf("answered %q", bytes.TrimSpace(status))
	}
	length, err := l.readHeader()
	if err != nil {
		return 0, err
	}
	_, err = l.br.Discard(int(length))
	return length, err
}

var lengthField = []byte("content-length:")

// readHeader returns the length of the body, which has to be said.
func (l *lane1) readHeader() (int64, error) {
	length := int64(-1)
	for {
		line, err := l.br.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case len(line) == 0 && length >= 0:
			return length, nil
		case len(line) == 0 && l.code == 304:
			return 0, nil
		case len(line) == 0:
			return 0, errors.New("answered without a length")
		case len(line) > len(lengthField) && bytes.EqualFold(line[:len(lengthField)], lengthField):
			if length, err = strconv.ParseInt(string(bytes.TrimSpace(line[len(lengthField):])), 10, 32); err != nil {
				return 0, fmt.Errorf("answered with a bad length: %w", err)
			}
		}
	}
}

// errBye is a connection that ended although nobody asked.
var errBye = fmt.Errorf("the connection ended: %w", io.ErrUnexpectedEOF)
