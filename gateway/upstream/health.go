package upstream

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"syscall"
	"time"

	"portico/apiservice/availability"
)

// refusedFor is how long an endpoint that refused a connection gets no requests
// if its active check does not say otherwise before.
const refusedFor = 2 * time.Second

// errSilent ends requests to an endpoint that does not answer its checks.
var errSilent = errors.New("the endpoint no longer answers")

// AnswerError is of a check that was answered, but not as it should be.
type AnswerError struct{ Code int }

func (e *AnswerError) Error() string {
	if e.Code == http.StatusLoopDetected {
		return "bad status: 508 Loop Detected: the address leads back to this gateway"
	}
	return fmt.Sprintf("bad status: %d", e.Code)
}

// SetVerdict takes what the active check says of an endpoint. One that fails
// gets no requests, even if it is the last, and its connections are not used any
// more: a connection may be dead without anybody knowing. If it is silent, safe
// requests that wait for it go to others.
func (u *Upstream) SetVerdict(url string, v availability.Verdict) {
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.find(url)
	if e == nil {
		return
	}
	fell := v.Known && !v.Healthy && (!e.verdict.Known || e.verdict.Healthy)
	rose := v.Healthy && e.verdict.Known && !e.verdict.Healthy
	if e.verdict = v; v.Err != nil {
		e.lastErr = v.Err.Error()
	}
	if v.Healthy {
		end(&e.refused)
	}
	if rose { // with what it did before, it is done
		e.ejected.end()
		e.badAnswers.Store(0)
		e.badConns.Store(0)
	}
	u.rebuild()
	if !fell {
		return
	}
	e.ways.renew()
	var answered *AnswerError
	if len(u.endpoints) > 1 && !errors.As(v.Err, &answered) {
		e.pending.cancel(errSilent)
	}
}

// passed takes a passed check into account, of which no new verdict comes.
func (u *Upstream) passed(e *endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.refused == nil && !(e.ejected.out != nil && e.ejected.local) {
		return
	}
	end(&e.refused)
	if e.ejected.local {
		e.ejected.end()
	}
	e.badConns.Store(0)
	u.rebuild()
}

// decisive reports whether an error proves that nobody listens: the connection
// was refused, or the socket is gone.
func decisive(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
}

// failedLocally takes into account that the connection failed or broke.
func (u *Upstream) failedLocally(e *endpoint, err error) {
	e.errors.Add(1)
	u.broken(e.URL)
	if decisive(err) {
		u.refuse(e, err)
		return
	}
	p := u.policy.Load()
	if n := int(e.badConns.Add(1)); p.ConsecutiveLocalErrors > 0 && n >= p.ConsecutiveLocalErrors {
		u.eject(e, true, err)
	}
}

// failed takes into account that the server answered with an error of its own.
func (u *Upstream) failed(e *endpoint, code int) {
	e.errors.Add(1)
	p := u.policy.Load()
	if n := int(e.badAnswers.Add(1)); p.ConsecutiveErrors > 0 && n >= p.ConsecutiveErrors {
		u.eject(e, false, &AnswerError{code})
	}
}

// refuse keeps the next request from an endpoint where nobody listens.
func (u *Upstream) refuse(e *endpoint, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.refused != nil || len(u.endpoints) == 1 || u.gone(e) {
		return
	}
	e.lastErr = err.Error()
	u.begin(&e.refused, refusedFor, func() {})
	u.rebuild()
}

// gone reports whether an endpoint is no longer one of the server's; mu is held.
func (u *Upstream) gone(e *endpoint) bool { return u.closed || u.find(e.URL) != e }

// usable reports whether the active check lets the endpoint have requests; mu is
// held.
func (e *endpoint) usable() bool { return !e.verdict.Known || e.verdict.Healthy }
