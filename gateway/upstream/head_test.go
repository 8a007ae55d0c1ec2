package upstream

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"
)

// silentConn is a connection of which all has come that there is.
type silentConn struct {
	net.Conn
	io.Reader
}

func (c silentConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// readHere reads an answer from a connection as direct does; nil if it is not plain.
func readHere(raw []byte, method string) (*plainHead, []byte, *bufio.Reader) {
	c := &directConn{Conn: silentConn{Reader: bytes.NewReader(raw)}, left: -1}
	c.br = bufio.NewReader(c)
	h, _ := c.readPlain(&http.Request{Method: method})
	if h == nil {
		return nil, nil, c.br
	}
	h.body.conn, h.body.left = c, h.res.ContentLength
	var body []byte
	var err error
	for b := make([]byte, 100); err == nil; {
		var n int
		n, err = h.body.readFixed(b)
		body = append(body, b[:n]...)
	}
	return h, append(body, err.Error()...), c.br
}

// Heads that are read here, and those that are left to net/http.
func TestPlainHead(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("X: y\r\n", n) }
	for head, want := range map[string]bool{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok":                             true,
		"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nA: b\r\n\r\nok":              true,
		"HTTP/1.1 599 \r\ncontent-length:2\r\nx-Y: \t z \r\n\r\nok":                  true,
		"HTTP/1.1 200 OK\r\nA: b\r\nA: c\r\nContent-Length: 2\r\nA: d\r\n\r\nok":     true,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + lines(maxPlain-1) + "\r\nok":    true,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + lines(maxPlain) + "\r\nok":      false,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: " + strings.Repeat("x", 5000):    false,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok":        false,
		"HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok":                            false,
		"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok":                          false,
		"HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nok":                              false,
		"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\nok":           false,
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":                               false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n": false,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok":        false,
		"HTTP/1.1 200 OK\r\nTrailer: A\r\nContent-Length: 2\r\n\r\nok":               false,
		"HTTP/1.1 200 OK\r\nPragma: no-cache\r\nContent-Length: 2\r\n\r\nok":         false,
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nok":               false,
		"HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 2\r\n\r\nok":                    false,
		"HTTP/1.1 200 OK\r\nA: b\x00\r\nContent-Length: 2\r\n\r\nok":                 false,
		"HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 2\r\n\r\nok":                  false,
		"HTTP/1.1 200 OK\nContent-Length: 2\n\nok":                                   false,
		"HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 2\r\n\r\nok":                 false,
		"HTTP/1.1 200 OK\r\n\r\nok":                                                  false,
		"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok":                     false,
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok":                   false,
		"HTTP/1.1 103 Early Hints\r\nContent-Length: 2\r\n\r\nok":                    false,
		"HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok":                            false,
		"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok":                                false,
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok":                             false,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n":                                   false,
		"": false,
	} {
		h, _, left := readHere([]byte(head), "GET")
		if (h != nil) != want {
			t.Errorf("%q: read here: %v", head, h != nil)
		}
		if h == nil && left.Buffered() != min(len(head), left.Size()) {
			t.Errorf("%q: some of it is gone", head)
		}
		if h, _, _ := readHere([]byte(head), "HEAD"); h != nil {
			t.Errorf("%q: the answer to a HEAD has a body", head)
		}
	}
}

// FuzzPlainHead: what is read here is what net/http reads.
func FuzzPlainHead(f *testing.F) {
	for _, head := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nok",
		"HTTP/1.1 299  \t\r\ncontent-LENGTH:2\r\nx-y: \t \xffz \r\nX-Y:\r\n1!: \r\n\r\nHTTP/1.1",
		"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nA : b\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nHost: a\r\nUpgrade: b\r\nContent-Length: 02\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\r\n\r\nok",
	} {
		f.Add([]byte(head))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, got, left := readHere(raw, "GET")
		if h == nil {
			return
		}
		theirs := bufio.NewReader(bytes.NewReader(raw))
		res, err := http.ReadResponse(theirs, &http.Request{Method: "GET"})
		if err != nil {
			t.Fatalf("net/http does not read it: %v", err)
		}
		body, err := io.ReadAll(res.Body)
		if err == nil {
			err = io.EOF
		}
		if want := append(body, err.Error()...); !bytes.Equal(got, want) {
			t.Errorf("the body is %q, to net/http %q", got, want)
		}
		rest, _ := io.ReadAll(left)
		if want, _ := io.ReadAll(theirs); !bytes.Equal(rest, want) {
			t.Errorf("%q is left, by net/http %q", rest, want)
		}
		h.res.Request, h.res.Body, res.Request, res.Body = nil, nil, nil, nil
		if !reflect.DeepEqual(&h.res, res) {
			t.Errorf("%+v, to net/http %+v", h.res, res)
		}
	})
}

// FuzzAppendHead: what is sent is what net/http would send, in any order.
func FuzzAppendHead(f *testing.F) {
	f.Add("GET", "server", "/api/v1/namespaces/default/pods/a", "", "Accept", "application/json", "kubectl")
	f.Add("POST", "[::1]:443", "/a b/\x00?#%2f", "x=y&z", "x-remote-extra-a%2fb", " spaced\t", "")
	f.Add("DELETE", "example.com:80", "*", "a b", "host", "a", "\t")
	f.Add("GET", "server", "/", "", "Accept", "a", "\t")
	f.Add("PATCH", "a/b", "", "?", "Content-Length", "7", "a\r\nb")
	f.Add("PUT", "", "//x", "\x7f", "Transfer-Encoding", "chunked", "é")
	f.Fuzz(func(t *testing.T, method, host, path, query, name, value, agent string) {
		req := &http.Request{
			Method: method, URL: &url.URL{Scheme: "http", Host: "server", Path: path, RawQuery: query}, Host: host,
			Header: http.Header{name: {value, "second"}, "User-Agent": {agent}},
		}
		if !new(direct).takes(req) {
			return
		}
		var ours, theirs bytes.Buffer
		if !appendHead(&ours, req) {
			if ours.Len() > 0 {
				t.Errorf("%q was written", ours.Bytes())
			}
			return
		}
		if err := req.Write(&theirs); err != nil {
			t.Fatalf("net/http does not write %q: %v", ours.Bytes(), err)
		}
		a, b := strings.Split(ours.String(), "\r\n"), strings.Split(theirs.String(), "\r\n")
		if a[0] != b[0] || a[1] != b[1] || len(a) != len(b) {
			t.Fatalf("%q, by net/http %q", a, b)
		}
		left := map[string]int{}
		for i := range a {
			left[a[i]]++
			left[b[i]]--
		}
		for line, n := range left {
			if n != 0 {
				t.Errorf("%q is there %d times too often", line, n)
			}
		}
	})
}

// rawServer reads a request from each connection, answers as it is said, and closes
// it. It returns the address.
func rawServer(t *testing.T, answer func(*net.TCPConn)) (at string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(conn))
			answer(conn.(*net.TCPConn))
			conn.Close()
		}
	}()
	return l.Addr().String()
}

// What a server sends does not fill logs and answers by way of errors.
func TestErrorsAreBrief(t *testing.T) {
	at := rawServer(t, func(conn *net.TCPConn) {
		_, _ = io.WriteString(conn, strings.Repeat("\x01é", 300<<10)+"\r\n\r\n")
	})
	for kind, name := range map[kind]string{short: "short", long: "long", upgrade: "upgrade"} {
		u := over(t, turns(), Endpoint{URL: "http://" + at, Network: "tcp", Address: at, Weight: 1, Base: mustParse("http://" + at)})
		got := send(t, u, kind, "GET", "")
		if got.err == nil {
			t.Fatalf("%s: the answer is taken for one", name)
		}
		if text := got.err.Error(); len(text) > 2*maxErrorText || !utf8.ValidString(text) {
			t.Errorf("%s: an error of %d bytes: %.100s", name, len(text), text)
		}
	}
}

// How a connection ended is told as it was, whatever was asked for.
func TestDirectTellsHowItEnded(t *testing.T) {
	for want, end := range map[error]func(*net.TCPConn){
		syscall.ECONNRESET:  func(c *net.TCPConn) { _ = c.SetLinger(0) },
		io.ErrUnexpectedEOF: func(*net.TCPConn) {},
	} {
		at := rawServer(t, end)
		u := over(t, turns(), Endpoint{URL: "http://" + at, Network: "tcp", Address: at, Weight: 1, Base: mustParse("http://" + at)})
		for _, method := range []string{"GET", "HEAD", "POST"} {
			if got := send(t, u, short, method, ""); !errors.Is(got.err, want) {
				t.Errorf("%s: %v, want %v", method, got.err, want)
			}
		}
	}
}
