package upstream

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// Trace records the attempts of one request. Put it into the request's context with
// WithTrace before the request is sent. Safe for concurrent use.
type Trace struct {
	// BeforeAttempt, if not nil, is called before every attempt with the endpoint's URL and
	// the header of the request, which it may add to. The function that it returns is
	// called after the attempt. It must be set before the request is sent.
	BeforeAttempt func(endpoint string, header http.Header) (ended func(Attempt))
	// FilterInformational, if not nil, is called with the header of every informational response
	// before that is passed on, and may remove from it. It must be set before the
	// request is sent, and is called by other goroutines.
	FilterInformational func(header http.Header)

	mu       sync.Mutex
	queued   time.Duration
	attempts []Attempt
	first    [1]Attempt // backs attempts of most requests
}

// Attempt is a request sent to an endpoint.
type Attempt struct {
	// Endpoint is the URL.
	Endpoint string
	Start    time.Time
	// FirstByte is the time from Start to the header of the answer, or to the
	// error.
	FirstByte time.Duration
	// Status is that of the answer; 0: there was none, for the reason in Err.
	Status int
	Err    error
}

// Attempts returns the attempts so far, in order.
func (t *Trace) Attempts() []Attempt {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Attempt(nil), t.attempts...)
}

// Last returns the last attempt so far and the number of attempts; the zero Attempt if
// there was none.
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

// Queued returns how long the request waited for a slot.
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

func (t *Trace) setQueued(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = d
}

type traceKey struct{}

// WithTrace returns a context whose requests are recorded in t.
func WithTrace(ctx context.Context, t *Trace) context.Context {
	return context.WithValue(ctx, traceKey{}, t)
}

// IsTrace reports whether key is that of the Trace in a context, for types that
// implement context.Context themselves.
func IsTrace(key any) bool { return key == traceKey{} }

// TraceFrom returns the Trace of a context; nil if there is none. The methods of a nil
// Trace return zero values.
func TraceFrom(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}
