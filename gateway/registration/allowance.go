package registration

import (
	"time"

	"golang.org/x/time/rate"
)

const (
	// burst is how many writes of one object may follow each other without a pause. A
	// new Backend changes up to five times within milliseconds (its Service is found,
	// checked, read and registered), and clients wait for these changes.
	burst = 6
	// messagePause separates two writes of one object that change only the text of
	// messages and errors. A server whose errors differ with every check then costs two
	// writes a minute instead of one per check. The first such write of an object, the
	// first after a change of the Backend, and changes of a state are not delayed.
	messagePause = 30 * time.Second
)

// allowance limits how often each of several objects is written: atOnce times without a
// pause, then once per pause. It is not safe for concurrent use.
type allowance struct {
	pause  time.Duration
	atOnce int
	// limiters has the objects, by name, whose burst is not whole.
	limiters map[string]*rate.Limiter
}

// wait returns how long the object must not be written; 0 means that it may be.
func (a *allowance) wait(name string, now time.Time) time.Duration {
	l := a.limiters[name]
	if l == nil {
		return 0
	}
	return max(0, time.Duration((1-l.TokensAt(now))*float64(a.pause)))
}

// spend counts a write.
func (a *allowance) spend(name string, now time.Time) {
	if a.limiters == nil {
		a.limiters = map[string]*rate.Limiter{}
	}
	l := a.limiters[name]
	if l == nil {
		l = rate.NewLimiter(rate.Every(a.pause), a.atOnce)
		a.limiters[name] = l
	}
	l.AllowN(now, 1)
}

// renew restores the whole burst of an object.
func (a *allowance) renew(name string) { delete(a.limiters, name) }

// forget drops the objects whose burst is whole again.
func (a *allowance) forget(now time.Time) {
	for name, l := range a.limiters {
		if l.TokensAt(now) >= float64(a.atOnce) {
			delete(a.limiters, name)
		}
	}
}
