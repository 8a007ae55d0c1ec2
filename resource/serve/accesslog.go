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

// OnHeader has f called with the header of the response when that is final and
// about to be sent: what f sets is sent, whatever a handler or proxy put there
// before. Of several the last one counts. To be called on the request's
// goroutine.
func OnHeader(ctx context.Context, f func(h http.Header)) {
	if x := exchangeFrom(ctx); x != nil {
		x.finalHeader = f
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
