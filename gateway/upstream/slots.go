package upstream

import (
	"net/http"
	"time"

	"portico/resource"
)

// slots are what a request holds of the limits of its server.
type slots struct {
	u       *Upstream
	user    string // "" for the gateway's own requests
	limit   bool   // a slot of Upstream.limit
	lasting bool   // a slot of Upstream.lasting
}

func (s *slots) releaseLimit() {
	if s.limit {
		s.u.limit.leave(s.user)
		s.limit = false
	}
}

func (s *slots) release() {
	s.releaseLimit()
	if s.lasting {
		s.u.lasting.Release(s.user)
		s.lasting = false
	}
}

// isLimited reports whether the request takes a slot of the limit. Requests without a
// deadline take none, except those that only ask for a stream of events: these may be
// answered like any other. A request to leave HTTP takes one if it is not known to be
// long-running.
func (l *retryLoop) isLimited() bool {
	switch {
	case l.kind == short, l.act != nil && l.act.Streams:
		return true
	}
	return l.kind == upgrade && (l.act == nil || !l.act.LongRunning())
}

// takeSlots takes the slots that the request needs, and waits for one of the limit. On
// an error it holds none.
func (l *retryLoop) takeSlots() error {
	l.slots.u = l.u
	l.slots.user, _ = l.userName()
	if l.limited {
		if err := l.enterLimit(); err != nil {
			return err
		}
		l.slots.limit = true
	}
	if err := l.takeLasting(); err != nil {
		l.slots.release()
		return err
	}
	return nil
}

func (l *retryLoop) enterLimit() error {
	if l.policy.ExemptUnlimited && l.unlimited() {
		l.u.limit.active.Exceed(l.slots.user)
		return nil
	}
	started := time.Now()
	waited, err := l.u.limit.enter(l.client(), l.slots.user)
	if waited && l.trace != nil {
		l.trace.setQueued(time.Since(started))
	}
	if is[*OverloadError](err) {
		l.u.overflowed.Add(1)
	}
	return err
}

// takeLasting takes a slot of Upstream.lasting if the request may last and has a
// connection of its own: file descriptors are few.
func (l *retryLoop) takeLasting() error {
	if l.u.lasting == nil || l.kind == short || l.kind == long && l.b.multiplexes() {
		return nil
	}
	if l.act == nil || l.act.User == nil || l.unlimited() {
		l.u.lasting.Exceed(l.slots.user)
	} else if !l.u.lasting.Take(l.slots.user) {
		l.u.overflowed.Add(1)
		return &OverloadError{Concurrent: l.u.lasting.Max()}
	}
	l.slots.lasting = true
	return nil
}

// unlimited reports whether the user has no limits.
func (l *retryLoop) unlimited() bool {
	return l.act != nil && l.act.User != nil && l.act.User.Unlimited()
}

// keepSlots lets the answer hold the slots until its end. A connection that has left
// HTTP, or a stream of events, may last and holds no slot of the limit.
func (l *retryLoop) keepSlots(res *http.Response) {
	switch body := res.Body.(type) {
	case *tunnel:
		l.slots.releaseLimit()
		body.hold(l.slots)
	case *answer:
		if l.kind == long && resource.IsEventStream(res.Header) {
			l.slots.releaseLimit()
		}
		body.hold(l.slots)
	default: // there is no body
		l.slots.release()
	}
}
