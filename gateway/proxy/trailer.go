package proxy

import (
	"net/http"
	"strings"

	"portico/resource/audit"

	"golang.org/x/net/http/httpguts"
)

// Some clients and caches add trailers to the header. So a header that a server must not
// send must not be a trailer either; nor must headers for framing, routing,
// authentication or the content (RFC 9110, 6.5.1).

// isGateways reports whether a header of an answer is set by the gateway only.
func isGateways(name string) bool {
	switch name {
	// The audit id is the id of the client's request, annotations belong to the audit event, timings are
	// the gateway's, and cookies would be sent with requests to all that the gateway serves.
	case "Audit-Id", audit.HeaderAnnotations, headerBackend, headerTiming, "Set-Cookie", "Set-Cookie2":
		return true
	}
	return strings.HasPrefix(name, "Access-Control-")
}

// isTrailer reports whether a server may send a header after the body.
func isTrailer(name string) bool {
	switch name {
	case "Age", "Date", "Expires", "Location", "Retry-After", "Strict-Transport-Security", "Upgrade", "Vary", "Warning":
		return false
	}
	return httpguts.ValidTrailerHeader(name) && !isGateways(name)
}

// filterTrailers removes what must not be a trailer: when trailers are announced, and at
// the end of the body.
func filterTrailers(trailer http.Header) {
	for name := range trailer {
		if !isTrailer(name) {
			delete(trailer, name)
		}
	}
}
