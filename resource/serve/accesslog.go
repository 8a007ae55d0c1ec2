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
	if x := exchangeFrom(ctx); x != nil && x.logged != nil {
		x.logged.upstream = u
	}
}

// Attachment is what a handler keeps with a request, without a context and a
// copy of the request for it.
type Attachment interface {
	// OnHeader is told of the header of the response, with the status, when it is
	// final and about to be sent. What it sets there is sent, whatever a handler
	// or proxy put there before. It is called on the goroutine that answers.
	OnHeader(h http.Header, code int)
	// Value returns a value of the request's context, nil if it has none for the
	// key. It may be called by any goroutine.
	Value(key any) any
}

// Attach keeps a with the request whose context it is, and reports whether there
// is one: outside of a chain there is not. A request has one Attachment, of one
// type; the last one counts.
func Attach(ctx context.Context, a Attachment) bool {
	x := exchangeFrom(ctx)
	if x == nil {
		return false
	}
	x.attached.Store(a)
	return true
}

// attachment returns what is kept with the exchange; nil if nothing is.
func (x *exchange) attachment() Attachment {
	a, _ := x.attached.Load().(Attachment)
	return a
}

// Started returns when the request's header had been read; the zero time outside
// of a chain.
func Started(ctx context.Context) time.Time {
	if x := exchangeFrom(ctx); x != nil {
		return x.start
	}
	return time.Time{}
}

// record is the request's line in the access log, if there is one.
func (x *exchange) record(r *http.Request, code int, took time.Duration) accesslog.Record {
	a, who := x.action, x.who()
	return accesslog.Record{
		Start: x.start, AuditID: x.auditID[0], TraceID: x.logged.traceID, User: nameOf(who.User), Impersonator: nameOf(who.Impersonator),
		Method: r.Method, Protocol: r.Proto, URI: r.RequestURI, Remote: r.RemoteAddr, UserAgent: r.UserAgent(),
		Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource,
		Namespace: a.Namespace, Name: a.Name,
		Code: code, Bytes: x.bytes, FirstByte: x.logged.firstByte, Took: took, Upstream: x.logged.upstream,
	}
}

// who is the Action by which logs tell who made the request: one that may not be made
// as somebody else is its sender's.
func (x *exchange) who() *resource.Action {
	if x.acting != nil {
		return x.acting
	}
	return x.action
}

func nameOf(u *resource.User) string {
	if u == nil {
		return ""
	}
	return u.Name
}
