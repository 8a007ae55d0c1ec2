package serve

import (
	"context"
	"net/http"
	"time"

	"portico/resource"
	"portico/resource/accesslog"
)

// SetUpstream leaves word, for the access log, of what the request met behind
// this server. To be called on the request's goroutine.
func SetUpstream(ctx context.Context, u accesslog.Upstream) {
	if x := exchangeFrom(ctx); x != nil {
		x.upstream = u
	}
}

// HeaderObserver is told of the header of a response, with the status, when it
// is final and about to be sent. What it sets there is sent, whatever a handler
// or proxy put there before.
type HeaderObserver interface {
	OnHeader(h http.Header, code int)
}

// OnHeader has o told of the header of the response; of several the last one
// is. To be called on the request's goroutine.
func OnHeader(ctx context.Context, o HeaderObserver) {
	if x := exchangeFrom(ctx); x != nil {
		x.observer = o
	}
}

// Started returns when the request's header had been read; the zero time outside
// of a chain.
func Started(ctx context.Context) time.Time {
	if x := exchangeFrom(ctx); x != nil {
		return x.start
	}
	return time.Time{}
}

// record is the request's line in the access log.
func (x *exchange) record(r *http.Request, code int, took time.Duration) accesslog.Record {
	a := x.action
	return accesslog.Record{
		Start: x.start, AuditID: x.auditID, TraceID: x.traceID, User: nameOf(a.User), Impersonator: nameOf(a.Impersonator),
		Method: r.Method, Protocol: r.Proto, URI: r.RequestURI, Remote: r.RemoteAddr, UserAgent: r.UserAgent(),
		Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource,
		Namespace: a.Namespace, Name: a.Name,
		Code: code, Bytes: x.bytes, FirstByte: x.firstByte, Took: took, Upstream: x.upstream,
	}
}

func nameOf(u *resource.User) string {
	if u == nil {
		return ""
	}
	return u.Name
}
