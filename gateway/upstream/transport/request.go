package transport

import "net/http"

// checkRequestLine returns the error for a request line that a server could read
// otherwise than it is meant; nil if there is none. The path is not checked: it is
// escaped when it is written.
func checkRequestLine(req *http.Request) error {
	for i := range len(req.Method) { // "" is GET
		if !isToken(req.Method[i]) {
			return &RequestLineError{"the method must be a token (RFC 9110, 5.6.2)"}
		}
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

// isToken reports whether a byte may be part of a token (RFC 9110, 5.6.2).
func isToken(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '.', '^', '_', '`', '|', '~', '-':
		return true
	}
	return false
}

// Size of a header list (RFC 9113, 6.5.2): what each field adds to its name and value,
// and about what the pseudo-header fields take beside their values, in bytes.
const (
	fieldOverhead  = 32
	pseudoOverhead = len(":method:scheme:path:authority") + 4*fieldOverhead
)

// headerListSize is the size of the request's header list, in bytes, without the
// fields that net/http adds.
func headerListSize(req *http.Request) int {
	n := pseudoOverhead + len(req.Method) + len(req.URL.Scheme) + len(req.URL.RequestURI()) + len(req.Host)
	for name, values := range req.Header {
		for _, v := range values {
			n += len(name) + len(v) + fieldOverhead
		}
	}
	return n
}

// hasBody reports whether a request has a body.
func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}
