package proxy

import (
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// What comes after the body is a header like any other to whoever adds it to the
// header, as some clients and caches do. So what a server does not get to say there
// it does not get to say here either; and what says how the message is framed, where
// it goes, who may have it or how it is to be read comes before the body or not at
// all (RFC 9110, 6.5.1).

// notServers reports whether a header of an answer is the gateway's to send, and not
// its servers'.
func notServers(name string) bool {
	switch name {
	// The answer belongs to the request that the client sent; and what servers say of
	// their timing would be taken for the gateway's.
	case "Audit-Id", headerBackend, headerTiming:
		return true
	}
	return strings.HasPrefix(name, "Access-Control-")
}

// trails reports whether a server may send a header after the body.
func trails(name string) bool {
	switch name {
	case "Age", "Date", "Expires", "Location", "Retry-After", "Set-Cookie", "Strict-Transport-Security", "Upgrade", "Vary", "Warning":
		return false
	}
	return httpguts.ValidTrailerHeader(name) && !notServers(name)
}

// keepTrailers takes away what may not come after the body: of what is announced,
// and, at the end of the body, of what has come.
func keepTrailers(trailer http.Header) {
	for name := range trailer {
		if !trails(name) {
			delete(trailer, name)
		}
	}
}

// keepInformation takes away what a server may not say before its answer either: what
// is the gateway's, and what is the connection's.
func keepInformation(header http.Header) {
	for name := range header {
		switch name {
		case "Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Set-Cookie", "Te", "Trailer", "Transfer-Encoding", "Upgrade":
			delete(header, name)
		default:
			if notServers(name) {
				delete(header, name)
			}
		}
	}
}
