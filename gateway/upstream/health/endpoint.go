// Package health keeps the health of one endpoint: the result of its active checks,
// refused connections, and its ejection after consecutive failures (outlier detection).
// It starts no timers and takes no locks: callers pass the time, and ask for the time
// of the next change.
//
// Runs in: gateway.
package health

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
)

const (
	// refusedFor is how long an endpoint that refused a connection gets no requests,
	// unless a check passes before.
	refusedFor = 2 * time.Second
	// forgivenAfter is how long an endpoint must get requests without an ejection for
	// one ejection less to count: the default interval of Envoy's outlier detection.
	forgivenAfter = 10 * time.Second
	// jitterDivisor: an ejection is longer by up to this part of its base, so that
	// gateways that ejected an endpoint together do not use it again together.
	jitterDivisor = 10
)

// Endpoint is the health of one endpoint. The zero value has had no check and gets
// requests. Not safe for concurrent use, except for Answers and Connections.
type Endpoint struct {
	// Answers counts answers that failed or did not begin in time, Connections those that
	// failed or broke.
	Answers, Connections Breaker
	// Verdict is the result of the active checks.
	Verdict availability.Verdict
	// LastError is why it was last not healthy, since LastErrorAt; "": it always was.
	LastError   string
	LastErrorAt time.Time

	refusedUntil, ejectedUntil time.Time
	// provisional: a passed check ends the ejection.
	provisional bool
	ejections   int // that count for the length of the next
}

// SetVerdict sets the result of an active check. Passing ends a refusal; recovering
// from a failed check also ends an ejection and resets the failures. fell reports
// whether the endpoint passed, or was not checked, before and fails now.
func (e *Endpoint) SetVerdict(v availability.Verdict, now time.Time) (fell bool) {
	passed := e.Passes()
	e.Verdict = v
	if v.Err != nil {
		e.setError(v.Err, now)
	}
	if v.Healthy {
		e.refusedUntil = time.Time{}
		if !passed {
			e.EndEjection(now)
			e.resetFailures()
		}
	}
	return passed && !e.Passes()
}

// CheckPassed records a passed check that leaves the Verdict as it is, and reports
// whether the endpoint gets requests again for it.
func (e *Endpoint) CheckPassed(now time.Time) bool {
	if !e.Refused(now) && !(e.Ejected(now) && e.provisional) {
		return false
	}
	e.refusedUntil = time.Time{}
	if e.provisional {
		e.EndEjection(now)
	}
	e.Connections.Good()
	return true
}

// Refuse keeps requests away for a while, because the endpoint refused a connection.
func (e *Endpoint) Refuse(now time.Time, err error) {
	e.setError(err, now)
	e.refusedUntil = now.Add(refusedFor)
}

// Eject keeps requests away for base times the ejections that count, up to most, and
// some jitter. Each forgivenAfter without an ejection makes one less count, from the
// end of the last. connections: for failed connections; a passed check ends such an
// ejection if it is the only one that counts, and proves nothing after another.
func (e *Endpoint) Eject(now time.Time, base, most time.Duration, connections bool, err error) {
	if !e.ejectedUntil.IsZero() {
		e.ejections = max(0, e.ejections-int(now.Sub(e.ejectedUntil)/forgivenAfter))
	}
	if base*time.Duration(e.ejections) < most { // more would only take longer to be forgiven
		e.ejections++
	}
	e.ejectedUntil = now.Add(min(base*time.Duration(e.ejections), most) + rand.N(base/jitterDivisor+1))
	e.provisional = connections && e.ejections <= 1
	e.setError(err, now)
	e.resetFailures()
}

func (e *Endpoint) setError(err error, now time.Time) { e.LastError, e.LastErrorAt = err.Error(), now }

func (e *Endpoint) resetFailures() { e.Answers.Good(); e.Connections.Good() }

// EndEjection ends an ejection before its time.
func (e *Endpoint) EndEjection(now time.Time) {
	if e.Ejected(now) {
		e.ejectedUntil = now
	}
}

// Passes reports whether the active checks pass. It is assumed until the first.
func (e *Endpoint) Passes() bool { return !e.Verdict.Known || e.Verdict.Healthy }

// Refused reports whether the endpoint has just refused a connection.
func (e *Endpoint) Refused(now time.Time) bool { return e.refusedUntil.After(now) }

// Ejected reports whether the endpoint is ejected.
func (e *Endpoint) Ejected(now time.Time) bool { return e.ejectedUntil.After(now) }

// State returns the state; it is never Draining.
func (e *Endpoint) State(now time.Time) backend.EndpointState {
	switch {
	case !e.Passes() || e.Refused(now):
		return backend.EndpointUnhealthy
	case e.Ejected(now):
		return backend.EndpointEjected
	case !e.Verdict.Known:
		return backend.EndpointUnknown
	}
	return backend.EndpointHealthy
}

// Next returns when a refusal or ejection next ends; zero: there is none.
func (e *Endpoint) Next(now time.Time) time.Time {
	switch refused, ejected := e.Refused(now), e.Ejected(now); {
	case refused && (!ejected || e.refusedUntil.Before(e.ejectedUntil)):
		return e.refusedUntil
	case ejected:
		return e.ejectedUntil
	}
	return time.Time{}
}

// IsRefused reports whether an error proves that nothing listens at the address: the
// connection was refused, or the unix socket does not exist.
func IsRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// Breaker counts consecutive failures. The zero value has none. Safe for concurrent use.
type Breaker struct{ failures atomic.Int32 }

// Failed counts a failure and reports whether limit in a row failed; 0 is no limit.
func (b *Breaker) Failed(limit int) bool { return int(b.failures.Add(1)) >= limit && limit > 0 }

// Good resets the failures. It reads before it writes, because it is called for almost
// every request.
func (b *Breaker) Good() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
}
