package upstream

import (
	"net/http"
	"sync"
	"time"
)

// TraceKey is the key of a *Trace in the context of a request.
type TraceKey struct{}

// Trace records the attempts of a request. It is the value of TraceKey in the context of the
// request. Safe for concurrent use.
type Trace struct {
	// BeforeAttempt, if not nil, is called before every attempt with the endpoint's URL and
	// the header of the request, which it may add to. The function that it returns is
	// called after the attempt. It must be set before the request is sent.
	BeforeAttempt func(endpoint string, header http.Header) (ended func(Attempt))

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

// Attempts returns the attempts so far, in order. They must not be changed.
func (t *Trace) Attempts() []Attempt {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.attempts[:len(t.attempts):len(t.attempts)]
}

// Queued returns how long the request waited for a slot.
func (t *Trace) Queued() time.Duration {
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
