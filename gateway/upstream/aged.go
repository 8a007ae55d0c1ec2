package upstream

import (
	"net/http"
	"sync"
	"time"
)

// aged is a transport whose connections take new requests for a time only:
// http.Transport uses one for as long as it lasts, so there is another transport
// every so often, and what is under way on the one before goes on. Safe for
// concurrent use.
type aged struct {
	// maxAge is how long a connection takes new requests; 0: as long as it lasts.
	maxAge time.Duration
	made   func() *http.Transport

	mu    sync.Mutex
	now   *http.Transport
	until time.Time // it is used; zero: for ever
}

func newAged(maxAge time.Duration, made func() *http.Transport) *aged {
	return &aged{maxAge: maxAge, made: made, now: made(), until: takesUntil(maxAge)}
}

// transport is the one for new requests. One that has had its time keeps no
// connection that becomes idle.
func (a *aged) transport() *http.Transport {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.until.IsZero() && time.Now().After(a.until) {
		a.now.CloseIdleConnections()
		a.now, a.until = a.made(), takesUntil(a.maxAge)
	}
	return a.now
}

// CloseIdleConnections lets go of what is idle, and of the rest once it is.
func (a *aged) CloseIdleConnections() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now.CloseIdleConnections()
}
