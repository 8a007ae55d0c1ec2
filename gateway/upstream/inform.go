package upstream

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
)

// informing is the context of a request by http.Transport, or on a shared
// connection, whose sender wants its informational responses; http.Transport takes
// any number. They are told on the goroutine that reads for all requests of a shared
// connection, and who is told writes them to a client, which may not read: so they
// are told on by a goroutine of the request's own, which there is only while there is
// something to tell.
type informing struct {
	context.Context
	trace httptrace.ClientTrace
	tell  func(int, textproto.MIMEHeader) error

	mu    sync.Mutex
	heard int
	queue []informational
	// told is closed when all that was queued has been told; nil: it has.
	told chan struct{}
	over bool // nobody is told any more
}

// informational is a response before the final one.
type informational struct {
	code   int
	header textproto.MIMEHeader
}

// informed returns the request as it goes by net/http; settle is to
// be called when it has an answer, or none.
func informed(req *http.Request) (out *http.Request, settle func(err error)) {
	t := httptrace.ContextClientTrace(req.Context())
	if t == nil || t.Got1xxResponse == nil {
		return req, func(error) {}
	}
	c := &informing{Context: req.Context(), trace: *t, tell: t.Got1xxResponse}
	c.trace.Got1xxResponse = c.hear
	return req.WithContext(c), c.settle
}

// Value puts the trace in the place of the one there was.
func (c *informing) Value(key any) any {
	v := c.Context.Value(key)
	if _, ok := v.(*httptrace.ClientTrace); ok {
		return &c.trace
	}
	return v
}

// hear takes a response to be told of. It does not block.
func (c *informing) hear(code int, header textproto.MIMEHeader) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard++; c.heard > maxInformed {
		return errInformed
	}
	if c.over {
		return nil
	}
	TraceFrom(c.Context).informing(http.Header(header))
	c.queue = append(c.queue, informational{code, header})
	if c.told == nil {
		c.told = make(chan struct{})
		go c.tellAll(c.told)
	}
	return nil
}

func (c *informing) tellAll(told chan struct{}) {
	defer close(told)
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.told = nil
			c.mu.Unlock()
			return
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		c.mu.Unlock()
		if err := c.tell(next.code, next.header); err != nil {
			c.mu.Lock()
			c.over, c.queue = true, nil
			c.mu.Unlock()
		}
	}
}

// settle returns when who wanted to be informed has been, so that the answer
// comes behind; without one there is nothing more to tell.
func (c *informing) settle(err error) {
	c.mu.Lock()
	if c.over = true; err != nil {
		c.queue = nil
	}
	told := c.told
	c.mu.Unlock()
	if told != nil {
		<-told
	}
}
