package retry

import (
	"errors"
	"net/http"

	"portico/gateway/upstream/transport"
)

// Result is how an attempt ended.
type Result struct {
	// Response is the answer; nil: there is none, for the reason in Err.
	Response *http.Response
	Err      error
	// Sent: the server may have seen some of the request.
	Sent bool
}

// Safe reports whether a method changes nothing, so that a request may be sent twice
// (RFC 9110, 9.2.1).
func Safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return true
	}
	return false
}

// Allowed reports whether a request may be sent again after a result. One of which no
// server has seen anything may be, whatever its method; any other only if it is safe, and
// the result may be better elsewhere.
func Allowed(safe bool, r Result) bool {
	if r.Err == nil {
		return safe && FailedElsewhere(r.Response)
	}
	return (safe || !r.Sent) && !IsClients(r.Err)
}

// FailedElsewhere reports whether an answer says that the server, not the request, is
// the reason, so that another endpoint may give a better one.
func FailedElsewhere(res *http.Response) bool {
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusTooManyRequests:
		return res.Header.Get("Retry-After") != ""
	}
	return false
}

// IsClients reports whether an error is the client's fault: no endpoint would answer
// the request.
func IsClients(err error) bool {
	_, body := errors.AsType[*BodyError](err)
	_, line := errors.AsType[*transport.RequestLineError](err)
	return body || line
}
