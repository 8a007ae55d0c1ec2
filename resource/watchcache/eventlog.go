package watchcache

import (
	"errors"
	"sort"
	"sync"
	"time"

	"portico/resource"
)

// Errors that end a watcher.
var (
	errSlow  = errors.New("the watcher is too slow: its next change is no longer in the event log")
	errBreak = errors.New("no history leads to the present state")
	// errUnreadable is an errBreak without a known present state.
	errUnreadable = errors.New("an object can no longer be read")
	// errForgotten ends a watcher that has read everything.
	errForgotten = errors.New("the resource is no longer served")
)

// scope is what a watcher is parked under: everything, one namespace, or one name in a
// namespace or in all of them.
type scope struct{ namespace, name string }

// eventLog is the recent history of one resource, and the watchers that wait for more.
type eventLog struct {
	// pending are changes to be added; guarded by Cache.mu.
	pending []*change

	mu      sync.Mutex // guards the fields below; locked after Cache.mu
	history history
	// floor is the oldest revision that a new watch can start after: every later change is
	// kept. newest is the revision of the newest change, at least floor.
	floor, newest int64
	// breaks counts the calls of breakOff, which end the watchers, and broken is the reason
	// of the last one.
	breaks int
	broken error
	// slow counts the watchers that ended because they were too slow.
	slow   int64
	parked map[scope][]*watcher
	// forgotten: there will be no further changes.
	forgotten bool
}

func newEventLog(rev int64) *eventLog {
	return &eventLog{floor: rev, newest: rev, parked: map[scope][]*watcher{}}
}

// flush adds the pending changes and wakes their watchers. Cache.mu is held.
func (l *eventLog) flush(now time.Duration, keep History) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(now, keep)
}

// cross is flush if the pending changes lead to a state that was read at rev, which becomes
// floor. Running watchers continue: they have no gap. Cache.mu is held.
func (l *eventLog) cross(rev int64, now time.Duration, keep History) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(now, keep)
	l.floor, l.newest = rev, max(l.newest, rev)
}

// add is flush with mu held.
func (l *eventLog) add(now time.Duration, keep History) {
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

// trim removes the oldest changes according to keep. mu is held.
func (l *eventLog) trim(now time.Duration, keep History) {
	h := &l.history
	for h.n > 0 {
		old := (h.n > keep.MinEvents || h.bytes > agedBytes) && now-h.get(h.first).when > keep.Age
		if !old && h.n <= keep.MaxEvents {
			return
		}
		l.removeOldest()
	}
}

// removeOldest removes the oldest change. Others of its revision, of the same transaction,
// remain, but no watch can start between them. mu is held.
func (l *eventLog) removeOldest() { l.floor = max(l.floor, l.history.pop().rev) }

// cut removes the oldest changes until the rest has at most the given bytes.
func (l *eventLog) cut(most int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.history.n > 0 && l.history.bytes > most {
		l.removeOldest()
	}
}

// bytes returns the size of the history.
func (l *eventLog) bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.history.bytes
}

// grown returns by how many bytes the history has grown since the last call.
func (l *eventLog) grown() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &l.history
	more := h.bytes - h.counted
	h.counted = h.bytes
	if l.forgotten {
		return 0
	}
	return more
}

// forget lets the watchers read what there is, and end. It returns the size of the history that
// grown has counted.
func (l *eventLog) forget() (counted int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgotten = true
	for s := range l.parked {
		l.wake(s, l.history.next())
	}
	return l.history.counted
}

// tidy removes old changes of a log without new ones.
func (l *eventLog) tidy(now time.Duration, keep History) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim(now, keep)
	l.history.shrink()
}

// wake makes the watchers parked under s continue at the change of that number. mu is held.
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

// breakOff removes all changes and ends every watch: no history leads to the state at rev.
// reason is errBreak or errUnreadable.
func (l *eventLog) breakOff(rev int64, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history.clear()
	l.floor, l.newest = rev, rev
	l.breaks, l.broken = l.breaks+1, reason
	for s := range l.parked {
		l.wake(s, l.history.next())
	}
}

// unchanged reports whether the resource has not changed between rev and any published
// snapshot.
func (l *eventLog) unchanged(rev int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest <= rev
}

// enter positions a watcher after the newest change.
func (l *eventLog) enter(w *watcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.number, w.breaks = l.history.next(), l.breaks
}

// enterAfter positions a watcher after all changes up to rev. Its error is a 410 if later
// ones are no longer kept.
func (l *eventLog) enterAfter(w *watcher, rev int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rev < l.floor {
		return resource.ExpiredWatch(rev, l.floor)
	}
	w.number, w.breaks = l.history.after(rev), l.breaks
	return nil
}

// read appends the next changes of w to into, at most batch and about batchBytes of them,
// and parks w if there are none.
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
	if len(into) == 0 && l.forgotten {
		return into, errForgotten
	}
	if len(into) == 0 && !w.closed {
		l.parked[w.scope] = append(l.parked[w.scope], w)
		w.parked, w.slot = true, len(l.parked[w.scope])-1
	}
	return into, nil
}

// leave removes a watcher.
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

// history is a ring buffer of changes, which are numbered consecutively. The zero history
// is empty.
type history struct {
	ring  []*change // its length is 0 or a power of two
	first int64     // number of the oldest change
	n     int
	bytes int64
	// counted is the value of bytes at the last eventLog.grown.
	counted int64
}

// next returns the number of the next change.
func (h *history) next() int64 { return h.first + int64(h.n) }

// get returns the change of a number.
func (h *history) get(number int64) *change { return h.ring[number&int64(len(h.ring)-1)] }

// push adds a change and returns its number.
func (h *history) push(c *change) int64 {
	if h.n == len(h.ring) {
		h.resize(max(16, 2*len(h.ring)))
	}
	number := h.next()
	h.ring[number&int64(len(h.ring)-1)] = c
	h.n++
	h.bytes += c.bytes()
	return number
}

// pop removes and returns the oldest change.
func (h *history) pop() *change {
	at := h.first & int64(len(h.ring)-1)
	c := h.ring[at]
	h.ring[at] = nil
	h.first++
	h.n--
	h.bytes -= c.bytes()
	return c
}

// clear removes all changes; numbers continue.
func (h *history) clear() {
	*h = history{first: h.next(), counted: h.counted}
}

// shrink reduces a ring that is mostly empty.
func (h *history) shrink() {
	size := len(h.ring)
	for size > 16 && h.n <= size/4 {
		size /= 2
	}
	if size < len(h.ring) {
		h.resize(size)
	}
}

func (h *history) resize(size int) {
	ring := make([]*change, size)
	for number := h.first; number < h.next(); number++ {
		ring[number&int64(size-1)] = h.get(number)
	}
	h.ring = ring
}

// after returns the number of the first change after a revision.
func (h *history) after(rev int64) int64 {
	return h.first + int64(sort.Search(h.n, func(i int) bool { return h.get(h.first+int64(i)).rev > rev }))
}
