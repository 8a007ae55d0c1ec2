package upstream

import (
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"strings"
)

// The head of most answers comes in one piece, is well formed, and says how long the
// body is. Such a head is read here: with one allocation for all of its text, where
// net/http makes some for every line. Whatever else there is, net/http reads it, from
// the first byte, by all of its rules: nothing is read here otherwise than it would
// be there, which a fuzzer proves.

// maxPlain is how many lines a head may have to be read here.
const maxPlain = 24

// plainHead is an answer that was read here, and its parts, in one piece.
type plainHead struct {
	res    http.Response
	body   responseBody
	values [8]string
}

// readPlain reads the head of an answer out of what has come; nil, and nothing is
// read, if it is for net/http. The length of the body, which has to be read from the
// connection, is that of the response. The error is the connection's, which tells it
// once: net/http would read another.
func (c *directConn) readPlain(req *http.Request) (*plainHead, error) {
	if req.Method == http.MethodHead {
		return nil, nil
	}
	if _, err := c.br.Peek(1); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	come, _ := c.br.Peek(c.br.Buffered())
	size := bytes.Index(come, []byte("\r\n\r\n")) + len("\r\n\r\n")
	if size < len("\r\n\r\n") {
		return nil, nil
	}
	h := parsePlain(string(come[:size]))
	if h == nil {
		return nil, nil
	}
	_, _ = c.br.Discard(size)
	h.res.Request = req
	return h, nil
}

// parsePlain parses a head that ends with an empty line; nil if it is not plain.
func parsePlain(head string) *plainHead {
	status, lines, _ := strings.Cut(head, "\r\n")
	code := plainStatus(status)
	n := strings.Count(lines, "\r\n") - 1
	if code == 0 || n < 1 || n > maxPlain {
		return nil
	}
	h := &plainHead{}
	values := h.values[:0:len(h.values)]
	if n > len(h.values) {
		values = make([]string, 0, n)
	}
	header, length := make(http.Header, n), int64(-1)
	for range n {
		var line string
		line, lines, _ = strings.Cut(lines, "\r\n")
		name, value, ok := plainLine(line)
		if !ok {
			return nil
		}
		switch name {
		case "Connection", "Pragma", "Trailer", "Transfer-Encoding", "Upgrade":
			return nil
		case "Content-Length":
			if length >= 0 {
				return nil
			}
			if length = plainLength(value); length < 0 {
				return nil
			}
		}
		if before, again := header[name]; again {
			header[name] = append(before, value) // which has no room, and moves
			continue
		}
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	if length <= 0 {
		return nil
	}
	h.res = http.Response{
		Status: status[len("HTTP/1.1 "):], StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, ContentLength: length,
	}
	return h
}

// plainStatus returns the code of a status line of which the answer has a body; 0 if
// it may not, or the line is not plain.
func plainStatus(line string) int {
	const before = "HTTP/1.1 "
	if len(line) < len(before)+4 || !strings.HasPrefix(line, before) {
		return 0
	}
	code := 0
	for _, c := range []byte(line[len(before) : len(before)+3]) {
		if c < '0' || c > '9' {
			return 0
		}
		code = code*10 + int(c-'0')
	}
	for i := len(before) + 3; i < len(line); i++ {
		if !isValue(line[i]) {
			return 0
		}
	}
	if line[len(before)+3] != ' ' || code < 200 || code == http.StatusNoContent || code == http.StatusNotModified {
		return 0
	}
	return code
}

// plainLine takes a line of a header apart. It is not one that goes on with the next
// line: that would begin with a space, which is no name.
func plainLine(line string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(line, ":")
	if !ok || name == "" {
		return "", "", false
	}
	upper, canonical := true, true
	for i := range len(name) {
		c := name[i]
		if !isToken(c) {
			return "", "", false
		}
		if upper && 'a' <= c && c <= 'z' || !upper && 'A' <= c && c <= 'Z' {
			canonical = false
		}
		upper = c == '-'
	}
	for i := range len(value) {
		if !isValue(value[i]) {
			return "", "", false
		}
	}
	if !canonical {
		name = textproto.CanonicalMIMEHeaderKey(name)
	}
	return name, textproto.TrimString(value), true
}

// plainLength parses a length; negative if it is not plain.
func plainLength(text string) int64 {
	if text == "" || len(text) > 18 {
		return -1
	}
	var n int64
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// readFixed reads of a body that is as long as was said.
func (b *responseBody) readFixed(p []byte) (int, error) {
	switch {
	case b.left == 0:
		return 0, io.EOF
	case b.done.Load():
		return 0, http.ErrBodyReadAfterClose
	}
	if int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.conn.br.Read(p)
	b.left -= int64(n)
	switch {
	case b.left == 0:
		return n, io.EOF
	case err == io.EOF:
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}
