package upstream

import (
	"sync"
	"time"

	"portico/resource"
)

// An endpoint that is removed gets no more requests, and its idle connections
// are closed. What is under way finishes; but a watch never would, so watches are
// ended, spread over a time: each client goes on at another endpoint from where
// it is, and they do not all come at once. Who set the endpoint again within that
// time has it back with what was counted of it.
//
// So it is with the watches of an endpoint whose weight is 0, as long as another
// gets requests. Until then they stay: they would find nothing.

const (
	// drainWithin is how long it takes until the last watch has ended.
	drainWithin = 30 * time.Second
	// drainEvery is how often some of them are.
	drainEvery  = 100 * time.Millisecond
	drainRounds = int(drainWithin / drainEvery)
)

// leave has an endpoint drain that is one of the server's no more; mu is held.
func (u *Upstream) leave(e *endpoint) {
	e.stop()
	if u.leaving == nil {
		u.leaving = map[string]*endpoint{}
	}
	if old := u.leaving[e.URL]; old != nil { // there was another under the URL
		end(&old.left)
		go old.streams.end(old.streams.count())
	}
	u.leaving[e.URL] = e
	e.drains.Store(true)
	e.unfollow()
	u.drain(e, drainRounds)
}

// move has the watches end of endpoints whose weight is 0, if there is another
// place for them; mu is held.
func (u *Upstream) move(elsewhere bool) {
	if u.closed {
		return // all of them leave
	}
	for _, e := range u.endpoints {
		if u.picks.Load().elsewhere(e) {
			e.unfollow()
		}
		e.drains.Store(e.Weight == 0 && elsewhere)
		switch {
		case !e.drains.Load():
			end(&e.left)
		case e.left == nil && e.streams.count() > 0:
			u.drain(e, drainRounds)
		}
	}
}

// late has a watch end that begins at an endpoint which drains: its request was
// under way already.
func (u *Upstream) late(e *endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e.drains.Load() && e.left == nil {
		u.drain(e, drainRounds)
	}
}

// drain ends some of an endpoint's watches in each of some rounds; mu is held.
func (u *Upstream) drain(e *endpoint, rounds int) {
	end(&e.left)
	s := new(spell)
	e.left = s
	s.timer = time.AfterFunc(drainEvery, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		if e.left != s {
			return
		}
		// Closing an answer may take a while.
		go e.streams.end((e.streams.count() + rounds - 1) / rounds)
		if rounds > 1 {
			u.drain(e, rounds-1)
			return
		}
		e.left = nil
		if u.leaving[e.URL] == e {
			delete(u.leaving, e.URL)
		}
	})
}

// back returns an endpoint that was removed a moment ago, as one that nobody has
// checked; nil if there was none. mu is held.
func (u *Upstream) back(spec Endpoint) *endpoint {
	e := u.leaving[spec.URL]
	if e == nil || !e.sameAs(spec) || u.closed {
		return nil
	}
	delete(u.leaving, spec.URL)
	end(&e.left)
	e.drains.Store(false)
	e.verdict.Known, e.verdict.Healthy = false, false
	e.ways.open()
	return e
}

// streams are the watches that an endpoint answers. The zero value has none.
type streams struct {
	mu   sync.Mutex
	all  *answer
	size int
}

// watches reports whether an answer is that to a watch: its client can go on
// elsewhere when it ends.
func (a *attempt) watches() bool {
	if a.kind != long {
		return false
	}
	act := resource.ActionFrom(a.client())
	return act != nil && act.Verb == "watch"
}

func (s *streams) add(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.next = s.all; a.next != nil {
		a.next.prev = a
	}
	s.all, a.listed = a, true
	s.size++
}

func (s *streams) remove(a *answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(a)
}

// drop is remove; mu is held.
func (s *streams) drop(a *answer) {
	if !a.listed {
		return
	}
	if a.prev != nil {
		a.prev.next = a.next
	} else {
		s.all = a.next
	}
	if a.next != nil {
		a.next.prev = a.prev
	}
	a.prev, a.next, a.listed = nil, nil, false
	s.size--
}

func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// end ends n of them in order: who reads them finds their end.
func (s *streams) end(n int) {
	for ; n > 0; n-- {
		s.mu.Lock()
		a := s.all
		if a != nil {
			s.drop(a)
		}
		s.mu.Unlock()
		if a == nil {
			return
		}
		a.state.Or(drainedAway)
		_ = a.ReadCloser.Close()
	}
}
