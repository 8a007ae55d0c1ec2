package transport

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"
)

// untraced is a context without the httptrace.ClientTrace of its parent.
type untraced struct{ context.Context }

func (c untraced) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return nil
	}
	return v
}

// withoutTrace returns the request without the trace of the caller, by which
// httputil.ReverseProxy forwards informational responses (1xx). The gateway forwards
// none: no client of a Kubernetes API uses them, they carry headers that the gateway
// would have to check, and over HTTP/2 net/http reports them on the goroutine that reads
// for all requests of the connection, where a slow client would block the others.
// net/http bounds the size of their headers.
func withoutTrace(req *http.Request) *http.Request {
	return req.WithContext(untraced{req.Context()})
}

// headerTrace records when the header of an HTTP/2 request is encoded.
type headerTrace struct {
	frames *frames

	mu      sync.Mutex
	encoded bool   // the header has been encoded, at least in part
	before  uint32 // the last stream before that
}

// attach returns a request that records its header.
func (t *headerTrace) attach(req *http.Request) *http.Request {
	trace := &httptrace.ClientTrace{WroteHeaderField: t.wroteField}
	return req.WithContext(httptrace.WithClientTrace(untraced{req.Context()}, trace))
}

// wroteField is called for every header field that is encoded. Streams are numbered in
// the order of their HEADERS, so this request has a later number than all before.
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
