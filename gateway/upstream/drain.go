package upstream

import "time"

// An endpoint that is removed gets no more requests, and its idle connections are
// closed. Requests in progress finish. Watches, which would not, are ended one after
// the other: their clients continue at another endpoint from where they are, and do not
// all come at once. An endpoint that is set again meanwhile keeps its counters.
//
// The same holds for the watches of an endpoint with the weight 0, while another one
// gets requests.

const (
	// drainWithin is how long it takes until the last watch has ended.
	drainWithin = 30 * time.Second
	// drainEvery is the time between two rounds.
	drainEvery  = 100 * time.Millisecond
	drainRounds = int(drainWithin / drainEvery)
)

// remove drains an endpoint that is no longer one of the server's; mu is held.
func (u *Upstream) remove(e *endpoint) {
	e.close()
	if u.removed == nil {
		u.removed = map[string]*endpoint{}
	}
	if old := u.removed[e.URL]; old != nil { // another one had the URL before
		stop(&old.draining)
		go old.watches.end(old.watches.count())
	}
	u.removed[e.URL] = e
	e.drains.Store(true)
	e.endFollowed()
	u.drain(e, drainRounds)
}

// moveWatches ends the watches of endpoints with the weight 0, if others get requests;
// mu is held.
func (u *Upstream) moveWatches(elsewhere bool) {
	if u.closed {
		return // all are removed
	}
	for _, e := range u.endpoints {
		if u.balancer.Load().elsewhere(e) {
			e.endFollowed()
		}
		e.drains.Store(e.Weight == 0 && elsewhere)
		switch {
		case !e.drains.Load():
			stop(&e.draining)
		case e.draining == nil && e.watches.count() > 0:
			u.drain(e, drainRounds)
		}
	}
}

// drainLate ends a watch whose request was sent before its endpoint began to drain.
func (u *Upstream) drainLate(e *endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.drains.Load() && e.draining == nil {
		u.drain(e, drainRounds)
	}
}

// drain ends some of an endpoint's watches in each of the rounds; mu is held.
func (u *Upstream) drain(e *endpoint, rounds int) {
	stop(&e.draining)
	s := new(period)
	e.draining = s
	s.timer = time.AfterFunc(drainEvery, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if e.draining != s {
			return
		}
		// Closing an answer may take a while.
		go e.watches.end((e.watches.count() + rounds - 1) / rounds)
		if rounds > 1 {
			u.drain(e, rounds-1)
			return
		}
		e.draining = nil
		if u.removed[e.URL] == e {
			delete(u.removed, e.URL)
		}
	})
}

// restore returns an endpoint that drains after it was removed, in the state Unknown;
// nil if there is none. mu is held.
func (u *Upstream) restore(spec Endpoint) *endpoint {
	e := u.removed[spec.URL]
	if e == nil || !e.sameAs(spec) || u.closed {
		return nil
	}
	delete(u.removed, spec.URL)
	stop(&e.draining)
	e.drains.Store(false)
	e.verdict.Known, e.verdict.Healthy = false, false
	e.transport.Reopen()
	return e
}
