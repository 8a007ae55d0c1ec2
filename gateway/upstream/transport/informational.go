package transport

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
)

// maxInformational is how many informational responses one request may get.
const maxInformational = 5

// requestTrace is the httptrace.ClientTrace of one request. It records when the header
// of an HTTP/2 request is encoded, and passes informational responses on to the
// client's own trace. They are reported on the goroutine that reads for all requests
// of a connection, and the client's trace writes them to a client, which may not read:
// a goroutine of the request, which exists only while there is something to pass on,
// does that.
type requestTrace struct {
	context.Context
	request *http.Request // as it is sent
	filter  func(http.Header)
	forward func(int, textproto.MIMEHeader) error // nil: nothing is passed on
	hooks   httptrace.ClientTrace

	mu        sync.Mutex
	frames    *frames
	hasHeader bool   // the header has been encoded, at least in part
	before    uint32 // the last stream before that

	count     int
	queue     []informational
	forwarded chan struct{} // closed when the queue has been passed on; nil: it is empty
	over      bool
}

// informational is a response before the final one.
type informational struct {
	code   int
	header textproto.MIMEHeader
}

// newRequestTrace returns the trace of a request; settle must follow when it has an
// answer or an error. filter, if not nil, may remove from the header of informational
// responses. frames are those of an HTTP/2 connection.
func newRequestTrace(req *http.Request, filter func(http.Header), frames *frames) *requestTrace {
	t := &requestTrace{Context: req.Context(), filter: filter, frames: frames, request: req}
	client := httptrace.ContextClientTrace(req.Context())
	if client != nil && client.Got1xxResponse != nil {
		t.forward = client.Got1xxResponse
		t.hooks.Got1xxResponse = t.got
	}
	if frames != nil {
		t.hooks.WroteHeaderField = t.encoding
	}
	switch {
	case client != nil:
		t.request = req.WithContext(t)
	case frames != nil:
		t.request = req.WithContext(httptrace.WithClientTrace(req.Context(), &t.hooks))
	}
	return t
}

// Value puts this trace in the place of the client's.
func (t *requestTrace) Value(key any) any {
	v := t.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return &t.hooks
	}
	return v
}

// encoding is called for every header field that is encoded. Streams are numbered in
// the order of their HEADERS, so that this request's is later than all before.
func (t *requestTrace) encoding(string, []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasHeader {
		t.hasHeader, t.before = true, t.frames.last()
	}
}

// encoded reports whether any of the header was encoded, and the last stream before.
func (t *requestTrace) encoded() (before uint32, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.before, t.hasHeader
}

// got takes an informational response to be passed on. It does not block.
func (t *requestTrace) got(code int, header textproto.MIMEHeader) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count++; t.count > maxInformational {
		return errInformational
	}
	if t.over {
		return nil
	}
	if t.filter != nil {
		t.filter(http.Header(header))
	}
	t.queue = append(t.queue, informational{code, header})
	if t.forwarded == nil {
		t.forwarded = make(chan struct{})
		go t.forwardAll(t.forwarded)
	}
	return nil
}

func (t *requestTrace) forwardAll(done chan struct{}) {
	defer close(done)
	for {
		t.mu.Lock()
		if len(t.queue) == 0 {
			t.forwarded = nil
			t.mu.Unlock()
			return
		}
		next := t.queue[0]
		t.queue = t.queue[1:]
		t.mu.Unlock()
		if err := t.forward(next.code, next.header); err != nil {
			t.mu.Lock()
			t.over, t.queue = true, nil
			t.mu.Unlock()
		}
	}
}

// settle returns when the informational responses have been passed on, so that the
// answer comes after them; without an answer the rest is dropped.
func (t *requestTrace) settle(err error) {
	if t.forward == nil {
		return
	}
	t.mu.Lock()
	if t.over = true; err != nil {
		t.queue = nil
	}
	done := t.forwarded
	t.mu.Unlock()
	if done != nil {
		<-done
	}
}
