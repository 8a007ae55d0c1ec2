package upstream

import (
	"errors"
	"net/http"
)

// A request may fail for what it is itself, on any endpoint. Its endpoint is not
// judged by that: who sends such requests could take one server after the other
// from everybody.

// largeHeader is how large the header of a request may be, in bytes, for a server
// to be expected to take it; many take no more. Some refuse a larger one by
// closing the connection or the stream, which tells no other reason.
const largeHeader = 8 << 10

// errHeaderList ends what net/http says of a header that is larger than a server
// said it takes.
const errHeaderList = "request header list larger than peer's advertised limit"

// HeaderError is the client's: the header of its request is larger than the
// server takes. Nothing was sent.
type HeaderError struct{}

func (*HeaderError) Error() string {
	return "the header of the request is larger than the server takes"
}

// RequestLineError is the client's: its request's method or query has a character
// that may not stand in a request line (RFC 9112, 3), so that the line could be read
// as another one. Nothing was sent.
type RequestLineError struct{ text string }

func (e *RequestLineError) Error() string { return e.text }

// checkRequestLine returns the error for a request line that would not be read as it
// is meant; nil if there is none. The path needs no check: it is escaped when it is
// written.
func checkRequestLine(req *http.Request) error {
	for i := range len(req.Method) { // "" is GET
		if !isToken(req.Method[i]) {
			return &RequestLineError{"the method must be a token (RFC 9110, 5.6.2)"}
		}
	}
	if req.URL.Opaque != "" || !isPlainTarget(req.URL.RawQuery) {
		return &RequestLineError{"the query must be percent-encoded: it must have no space, number sign, control character or byte above 0x7e"}
	}
	return nil
}

// clients reports whether an error is the client's.
func clients(err error) bool {
	var body *BodyError
	var header *HeaderError
	var line *RequestLineError
	return errors.As(err, &body) || errors.As(err, &header) || errors.As(err, &line)
}

// blameless reports whether an endpoint may have failed a request for its header
// alone. Where the connection could not be made, it did not see it.
func blameless(req *http.Request, err error) bool {
	return !unconnected(err) && headerSize(req) > largeHeader
}

// unconnected reports whether the connection could not be made.
func unconnected(err error) bool {
	var connect *ConnectError
	return errors.As(err, &connect)
}

// headerSize is about how large the header of a request is as it is sent, in
// bytes.
func headerSize(req *http.Request) int {
	n := len(req.Method) + len(req.URL.Path) + len(req.URL.RawQuery) + len(req.Host)
	for name, values := range req.Header {
		for _, v := range values {
			n += len(name) + len(v) + len(": \r\n")
		}
	}
	return n
}
