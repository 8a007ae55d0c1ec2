package registration

import "time"

const (
	// burst is how many writes of one object are made at once: the first changes of a
	// new one, five at most of a Backend whose Service is found, checked, read and
	// registered, follow each other within milliseconds, and somebody waits for them.
	burst = 6
	// messagePause is the time between two writes of which nothing but the text of
	// messages and errors differs: a server whose errors read otherwise each time costs
	// two writes a minute, of its Backend and of each of its APIServices, not one with
	// each check. The first of them is not held back, nor the first after a change of
	// the Backend, nor is any change of a state.
	messagePause = 30 * time.Second
)

// allowance bounds how often each of several objects is written: so many times at
// once, and from then on once each pause. Not safe for concurrent use.
type allowance struct {
	pause  time.Duration
	atOnce int
	// whole is when all of an object's burst may be used again, by name. Those that
	// are not here may use it now.
	whole map[string]time.Time
}

// wait returns how long an object must not be written yet; 0 is not at all.
func (a *allowance) wait(name string, now time.Time) time.Duration {
	whole, used := a.whole[name]
	if !used {
		return 0
	}
	return max(0, whole.Sub(now)-time.Duration(a.atOnce-1)*a.pause)
}

// spend takes a write down.
func (a *allowance) spend(name string, now time.Time) {
	if a.whole == nil {
		a.whole = map[string]time.Time{}
	}
	from := a.whole[name]
	if from.Before(now) {
		from = now
	}
	a.whole[name] = from.Add(a.pause)
}

// renew gives an object its whole burst back.
func (a *allowance) renew(name string) { delete(a.whole, name) }

// forget lets go of objects that may use their whole burst.
func (a *allowance) forget(now time.Time) {
	for name, at := range a.whole {
		if !at.After(now) {
			delete(a.whole, name)
		}
	}
}
