package upstream

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Trace is what became of one request on its way to a server: where it was
// sent, one attempt after the other. Put it into the request's context with
// WithTrace before the request is sent; who does not, pays nothing. Safe for
// concurrent use.
type Trace struct {
	// Sending, if not nil, is called before every attempt with the endpoint's URL
	// and the header of the request, which it may add to, and what it returns
	// after the attempt. To be set before the request is sent.
	Sending func(endpoint string, header http.Header) (ended func(Attempt))
	// Informing, if not nil, is called with the header of every informational answer
	// before it is handed on, and may take away of it. To be set before the request
	// is sent; it is called by other goroutines.
	Informing func(header http.Header)

	mu       sync.Mutex
	queued   time.Duration
	attempts []Attempt
	first    [1]Attempt // most requests need no more
}

// Attempt is a request sent to an endpoint.
type Attempt struct {
	// Endpoint is the URL.
	Endpoint string
	Start    time.Time
	// FirstByte is the time from Start to the header of the answer, or to the
	// error.
	FirstByte time.Duration
	// Status is that of the answer; 0: there was none, and Err says why.
	Status int
	Err    error
	// Retry says why the request was then sent again; "": it was not.
	Retry string
}

// Attempts returns what was tried so far, in order.
func (t *Trace) Attempts() []Attempt {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Attempt(nil), t.attempts...)
}

// Last returns the last attempt so far, and how many there were; without any,
// the zero Attempt.
func (t *Trace) Last() (last Attempt, n int) {
	if t == nil {
		return Attempt{}, 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n = len(t.attempts); n > 0 {
		last = t.attempts[n-1]
	}
	return last, n
}

// Queued is how long the request waited because too many were under way.
func (t *Trace) Queued() time.Duration {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queued
}

func (t *Trace) add(a Attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.attempts == nil {
		t.attempts = t.first[:0]
	}
	t.attempts = append(t.attempts, a)
}

// setRetry records why there is another attempt.
func (t *Trace) setRetry(why string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.attempts[len(t.attempts)-1].Retry = why
}

func (t *Trace) setQueued(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = d
}

type traceKey struct{}

// WithTrace has the ways of an Upstream write into t what they do.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// IsTrace reports whether it is the Trace that a context is asked for by the key,
// for those that have a context of their own instead of WithTrace.
func IsTrace(key any) bool { return key == traceKey{} }

// TraceFrom returns the Trace of a request; nil if there is none. A nil Trace
// may be read.
func TraceFrom(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}
