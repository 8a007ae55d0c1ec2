package upstream

import (
	"bytes"
	"net/http"
	"net/textproto"
)

// appendHead appends the head of a request that has no body, as it goes by
// HTTP/1.1. It is for those that direct takes, whose header is valid; ok is false,
// and nothing was appended, if there is anything else that net/http has a rule for.
// The lines are in no order, which nobody may rely on; to sort them is most of what
// net/http spends on it.
func appendHead(to *bytes.Buffer, req *http.Request) (ok bool) {
	host := req.Host
	if host == "" {
		host = req.URL.Host
	}
	path := req.URL.EscapedPath()
	if hasBody(req) || req.Close || req.URL.Opaque != "" || !isPlainHost(host) || path == "" || !isPlainTarget(path) || !isPlainTarget(req.URL.RawQuery) {
		return false
	}
	b := to.AvailableBuffer()
	b = append(b, req.Method...)
	b = append(b, ' ')
	b = append(b, path...)
	if req.URL.ForceQuery || req.URL.RawQuery != "" {
		b = append(b, '?')
		b = append(b, req.URL.RawQuery...)
	}
	b = append(b, " HTTP/1.1\r\n"...)
	b = appendLine(b, "Host", host)
	agent := userAgent
	if given, ok := req.Header["User-Agent"]; ok {
		agent = ""
		if len(given) > 0 {
			agent = given[0]
		}
	}
	if agent != "" { // of nothing but space it is an empty line, as net/http has it
		b = appendLine(b, "User-Agent", textproto.TrimString(agent))
	}
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		b = appendLine(b, "Content-Length", "0")
	}
	for name, values := range req.Header {
		switch name {
		case "Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		}
		for _, v := range values {
			b = appendLine(b, name, textproto.TrimString(v))
		}
	}
	b = append(b, "\r\n"...)
	to.Write(b)
	return true
}

// userAgent is what a request says that does not say who asks, as net/http has it.
const userAgent = "Go-http-client/1.1"

func appendLine(b []byte, name, value string) []byte {
	b = append(b, name...)
	b = append(b, ": "...)
	b = append(b, value...)
	return append(b, "\r\n"...)
}

// isPlainHost reports whether a host is written as it is sent, port included.
func isPlainHost(host string) bool {
	for i := range len(host) {
		if c := host[i]; !isAlphanumeric(c) && c != '.' && c != '-' && c != ':' && c != '_' && c != '[' && c != ']' {
			return false
		}
	}
	return host != ""
}

// isPlainTarget reports whether a part of a request's target is one word of the
// request line, and no fragment.
func isPlainTarget(text string) bool {
	for i := range len(text) {
		if c := text[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// isToken reports whether a byte may be part of the name of a header (RFC 9110,
// 5.6.2).
func isToken(c byte) bool {
	if isAlphanumeric(c) || c == '-' {
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}

// isValue reports whether a byte may be part of the value of one (RFC 9110, 5.5).
func isValue(c byte) bool { return c >= ' ' && c != 0x7f || c == '\t' }

// isHeader reports whether a header can be sent, and will be read as the one it is.
func isHeader(name string, values []string) bool {
	for i := range len(name) {
		if !isToken(name[i]) {
			return false
		}
	}
	for _, v := range values {
		for i := range len(v) {
			if !isValue(v[i]) {
				return false
			}
		}
	}
	return name != ""
}
