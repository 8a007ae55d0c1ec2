package filter

import (
	"context"
	"net/http"
	"time"

	"portico/resource"
)

// CodeClientGone is the code of a request if the client closed the connection before the
// response began, as other servers log it. It is not sent.
const CodeClientGone = 499

// RequestLog records requests that have ended.
type RequestLog interface {
	// Add records a request. It is called on the request's goroutine and must not
	// block; end and its Request are valid until it returns.
	Add(end *RequestEnd)
	// Run writes what is added until ctx ends, and then what is left.
	Run(ctx context.Context) error
}

// RequestEnd describes a request that has ended.
type RequestEnd struct {
	Request *http.Request
	// Action has the user as which the request was made, and the impersonator. If
	// impersonation is forbidden, the user is the sender.
	Action *resource.Action
	// AuditID and TraceID identify the request in other logs; "" is unknown.
	AuditID, TraceID string
	// Start is when the header of the request had been read.
	Start time.Time
	// Code is the status, or CodeClientGone; Bytes the length of the body.
	Code  int
	Bytes int64
	// FirstByte and Took are the times from Start to the header of the response and to
	// its end; FirstByte is 0 if there was no response.
	FirstByte, Took time.Duration
	// Upstream describes how the request was proxied; zero if it was not.
	Upstream Upstream
}

// Upstream describes how a request was proxied to another server.
type Upstream struct {
	// APIService and Backend name the route, Endpoint the endpoint that sent the response,
	// or the last one that was tried.
	APIService, Backend, Endpoint string
	// Attempts is how often the request was sent.
	Attempts int
	// FirstByte and Took are the times from sending the request to the header and to
	// the end of the response, failed attempts included.
	FirstByte, Took time.Duration
	// Err is why there was no response.
	Err string
}

// SetUpstream describes, for the RequestLog, how the request was proxied. It is called
// on the request's goroutine.
func SetUpstream(ctx context.Context, u Upstream) {
	if rs := stateOf(ctx); rs != nil {
		rs.upstream = u
	}
}

// end returns the record of the RequestLog.
func (rs *requestState) end(r *http.Request, code int, took time.Duration) *RequestEnd {
	return &RequestEnd{
		Request: r, Action: rs.user(), AuditID: rs.auditID[0], TraceID: rs.traceID, Start: rs.start,
		Code: code, Bytes: rs.bytes, FirstByte: rs.firstByte, Took: took, Upstream: rs.upstream,
	}
}
