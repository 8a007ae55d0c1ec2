package transport

import (
	"net/http"

	"golang.org/x/net/http/httpguts"
)

// checkRequestLine returns the error for a request line that a server could read as
// another one; nil if there is none. The path is not checked: it is escaped when it is
// written.
func checkRequestLine(req *http.Request) error {
	// A header field name is a token (RFC 9110, 5.1), as a method is (9.1).
	if req.Method != "" && !httpguts.ValidHeaderFieldName(req.Method) {
		return &RequestLineError{"the method must be a token (RFC 9110, 5.6.2)"}
	}
	if req.URL.Opaque != "" || !isQuery(req.URL.RawQuery) {
		return &RequestLineError{"the query must be percent-encoded: it must have no space, number sign, control character or byte above 0x7e"}
	}
	return nil
}

// isQuery reports whether a query is part of one word of the request line, without a
// fragment.
func isQuery(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return true
}

// HasBody reports whether a request has a body.
func HasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
