package serve

import (
	"context"
	"net/http"
)

// Attachment is a handler's own state of a request. It costs no context and no copy of
// the request.
type Attachment interface {
	// OnHeader is called with the final header and status of the response before they
	// are sent, on the goroutine that sends them. Fields that it sets replace those of
	// handlers and proxies.
	OnHeader(h http.Header, code int)
	// Value returns a value of the request's context, or nil. Safe for concurrent use.
	Value(key any) any
}

// Attach attaches a to the request whose context it is; it reports false outside of a
// chain. A request has one Attachment, the last one. All of them have the same type.
func Attach(ctx context.Context, a Attachment) bool {
	x := exchangeFrom(ctx)
	if x == nil {
		return false
	}
	x.attached.Store(a)
	return true
}

// attachment returns the request's Attachment, or nil.
func (x *exchange) attachment() Attachment {
	a, _ := x.attached.Load().(Attachment)
	return a
}
