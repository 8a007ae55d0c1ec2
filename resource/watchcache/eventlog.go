package watchcache

import (
	"errors"
	"sync"
	"time"

	"portico/resource"
)

// Why a watcher cannot go on.
var (
	errSlow  = errors.New("the watcher is too slow: its next change is no longer in the event log")
	errBreak = errors.New("no history leads to the present state")
	// errUnreadable is errBreak too: the present state is not known.
	errUnreadable = errors.New("an object cannot be read any more")
)

// scope is a part of a event log that a watcher can be parked under: everything,
// one namespace, or one name in a namespace or in all of them.
type scope struct{ namespace, name string }

// event log is the recent history of one resource, and who waits for more of it.
type eventLog struct {
	// pending are changes on their way in; guarded by Cache.mu.
	pending []*change
	indexes indexes

	mu      sync.Mutex // guards what follows; taken after Cache.mu
	history history
	// floor is the revision after which every change is kept: the oldest one
	// that a new watch can go on from. newest is the revision of the newest
	// change, at least floor.
	floor, newest int64
	// breaks counts how often the event log was broken off: watchers from before
	// cannot go on.
	breaks int
	// broken is why it was last.
	broken error
	// slow counts the watchers that were ended because they were.
	slow   int64
	parked map[scope][]*watcher
}

func newEventLog(rev int64) *eventLog {
	return &eventLog{floor: rev, newest: rev, parked: map[scope][]*watcher{}}
}

// flush takes the pending changes in and wakes who waits for them. Cache.mu is
// held.
func (l *eventLog) flush(now time.Duration, keep History) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take(now, keep)
}

// cross is flush where the pending changes lead to a state that was read anew,
// at rev, which becomes the oldest revision to go on from. Watchers that are
// running go on: for them the event log has no gap.
func (l *eventLog) cross(rev int64, now time.Duration, keep History) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take(now, keep)
	l.floor, l.newest = rev, max(l.newest, rev)
}

// take is flush with mu held.
func (l *eventLog) take(now time.Duration, keep History) {
	for _, c := range l.pending {
		c.when = now
		number := l.history.push(c)
		l.newest = max(l.newest, c.rev)
		l.trim(now, keep)
		o := c.object()
		l.wake(scope{}, number)
		l.wake(scope{name: o.Name}, number)
		if o.Namespace != "" {
			l.wake(scope{namespace: o.Namespace}, number)
			l.wake(scope{o.Namespace, o.Name}, number)
		}
	}
	clear(l.pending)
	l.pending = l.pending[:0]
}

// trim forgets the oldest changes as History says. mu is held.
func (l *eventLog) trim(now time.Duration, keep History) {
	h := &l.history
	for h.n > 0 {
		old := (h.n > keep.MinEvents || h.cost > agedBytes) && now-h.get(h.first).when > keep.Age
		if !old && h.n <= keep.MaxEvents {
			return
		}
		l.forget()
	}
}

// forget forgets the oldest change. Changes of one transaction share a revision:
// the rest of them stays, but nobody can begin in their midst. mu is held.
func (l *eventLog) forget() { l.floor = max(l.floor, l.history.pop().rev) }

// cut forgets the oldest changes until the rest costs no more than most.
func (l *eventLog) cut(most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.history.n > 0 && l.history.cost > most {
		l.forget()
	}
}

// cost is what the history costs, in bytes.
func (l *eventLog) cost() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.history.cost
}

// spent returns how much more the history costs than when it was asked last.
func (l *eventLog) spent() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.history
	more := h.cost - h.told
	h.told = h.cost
	return more
}

// tidy forgets what is old in a event log that nothing happens in.
func (l *eventLog) tidy(now time.Duration, keep History) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim(now, keep)
	l.history.shrink()
}

// wake has everybody parked under s go on with the change of that number. mu
// is held.
func (l *eventLog) wake(s scope, number int64) {
	waiting := l.parked[s]
	if len(waiting) == 0 {
		return
	}
	for i, w := range waiting {
		waiting[i] = nil
		w.number, w.parked = number, false
		select {
		case w.woken <- struct{}{}:
		default:
		}
	}
	l.parked[s] = waiting[:0]
}

// breakOff forgets everything and ends every watch: nothing leads from what
// they have seen to the state at rev. why is errBreak or errUnreadable.
func (l *eventLog) breakOff(rev int64, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.clear()
	l.floor, l.newest = rev, rev
	l.breaks, l.broken = l.breaks+1, why
	for s := range l.parked {
		l.wake(s, l.history.next())
	}
}

// unchanged reports whether the resource is at every revision from rev up to
// that of any published snapshot what it is at rev.
func (l *eventLog) unchanged(rev int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest <= rev
}

// changesSince returns every change after a revision, and how often the event log
// was broken off. It fails when they are no longer kept, or when the event log was
// broken off more often than breaks (below 0: never mind).
func (l *eventLog) changesSince(rev int64, breaks int) ([]*change, int, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rev < l.floor || breaks >= 0 && breaks != l.breaks {
		return nil, l.breaks, false
	}
	h := &l.history
	var out []*change
	for number := h.after(rev); number < h.next(); number++ {
		out = append(out, h.get(number))
	}
	return out, l.breaks, true
}

// enter puts a watcher behind the newest change.
func (l *eventLog) enter(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.number, w.breaks = l.history.next(), l.breaks
}

// enterAfter puts a watcher behind all changes up to rev. It fails with a 410
// when what follows rev is no longer kept.
func (l *eventLog) enterAfter(w *watcher, rev int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rev < l.floor {
		return resource.ExpiredWatch(rev, l.floor)
	}
	w.number, w.breaks = l.history.after(rev), l.breaks
	return nil
}

// read appends the next changes for w to into, at most batch and about
// batchBytes of them, and parks w if there are none.
func (l *eventLog) read(w *watcher, into []*change) ([]*change, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.breaks != l.breaks:
		return into, l.broken
	case w.parked:
		return into, nil
	case w.number < l.history.first:
		l.slow++
		return into, errSlow
	}
	end := min(l.history.next(), w.number+batch)
	for size := 0; w.number < end && size < batchBytes; w.number++ {
		c := l.history.get(w.number)
		into = append(into, c)
		size += len(c.object().Data)
	}
	if len(into) == 0 && !w.closed {
		l.parked[w.scope] = append(l.parked[w.scope], w)
		w.parked, w.slot = true, len(l.parked[w.scope])-1
	}
	return into, nil
}

// leave takes a watcher out.
func (l *eventLog) leave(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.closed = true
	w.stop()
	if w.parked {
		list := l.parked[w.scope]
		last := len(list) - 1
		list[w.slot] = list[last]
		list[w.slot].slot = w.slot
		list[last] = nil
		l.parked[w.scope] = list[:last]
		w.parked = false
	}
	if len(l.parked[w.scope]) == 0 {
		delete(l.parked, w.scope)
	}
}
