package transport

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
)

// maxInformational is how many informational responses (1xx) a request may get.
const maxInformational = 5

var errInformational = errors.New("more than 5 informational responses")

// tracedContext is a context with another httptrace.ClientTrace than its parent has;
// httptrace.WithClientTrace would call the hooks of both.
type tracedContext struct {
	context.Context
	trace *httptrace.ClientTrace
}

func (c tracedContext) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return c.trace
	}
	return v
}

// withTrace returns the request with the trace instead of the client's.
func withTrace(req *http.Request, trace *httptrace.ClientTrace) *http.Request {
	ctx := req.Context()
	if httptrace.ContextClientTrace(ctx) == nil {
		return req.WithContext(httptrace.WithClientTrace(ctx, trace))
	}
	return req.WithContext(tracedContext{ctx, trace})
}

// forwardInformational returns a request whose informational responses go to the
// client's trace, up to maxInformational of them. filter, if not nil, may remove from
// their headers.
func forwardInformational(req *http.Request, filter func(http.Header)) *http.Request {
	client := httptrace.ContextClientTrace(req.Context())
	if client == nil || client.Got1xxResponse == nil {
		return req
	}
	count := 0
	return withTrace(req, &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		if count++; count > maxInformational {
			return errInformational
		}
		if filter != nil {
			filter(http.Header(header))
		}
		return client.Got1xxResponse(code, header)
	}})
}

// headerTrace records when the header of an HTTP/2 request is encoded.
type headerTrace struct {
	frames *frames

	mu      sync.Mutex
	encoded bool   // the header has been encoded, at least in part
	before  uint32 // the last stream before that
}

// attach returns a request whose header is recorded. Informational responses are not
// forwarded: net/http reports them on the goroutine that reads for all requests of the
// connection, and a client that does not read them would hold up the others.
func (t *headerTrace) attach(req *http.Request) *http.Request {
	return withTrace(req, &httptrace.ClientTrace{WroteHeaderField: t.wroteField})
}

// wroteField is called for every header field that is encoded. Streams are numbered in
// the order of their HEADERS, so that this request's is later than all before.
func (t *headerTrace) wroteField(string, []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.encoded {
		t.encoded, t.before = true, t.frames.last()
	}
}

// result reports whether any of the header was encoded, and the last stream before.
func (t *headerTrace) result() (before uint32, encoded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.before, t.encoded
}
