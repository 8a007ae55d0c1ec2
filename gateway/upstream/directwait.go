package upstream

import (
	"container/list"
	"context"
	"fmt"
	"time"
)

// A request that finds no idle connection waits in line for the first one that
// is made or comes free, whoever it was made for. So a burst costs as many
// handshakes as it needs connections: were each request to dial for itself and
// wait for nothing else, the handshakes would take the processor from each other
// until none of them ends in its time, while connections come free unused.
//
// Dials are nobody's own. As long as somebody waits who has none under way for
// them, and there may be more, there is one more; what nobody waits for when it
// is there is kept for later.
//
// Where connections come free all the time there is none at once, but only for who
// has waited for as long as a dial takes. When a process of some thousand requests
// a second gets no processor for a few milliseconds, those that come after it find
// nothing idle; they will within a millisecond, unless handshakes, which take as
// long each, make the next stop of it. And where it is the processor that all wait
// for, another connection is of no use to anybody: a handshake is as much work as
// twenty requests. So who looks whether somebody has waited for too long looks, too,
// how late the process learns of what has come. Measured with one processor and 5,000
// requests a second over HTTP/2: after a stop there were 47 connections, and 284 a
// second later, for which 6,600 requests took longer than 3 ms; like this 55, and 78.
//
// Each request has its own time to connect, counted from when it began to wait.
// It is given up when nothing came of the endpoint for all of that time: neither
// a new connection nor one with a whole answer behind it. Where something did,
// the endpoint is well, and this machine or the crowd is slow: giving up would
// only lose the place in line, and take the endpoint from others. An endpoint
// that falls silent is so left after the time to connect at the latest.

// dialsPerProcessor is how many connections are made to an endpoint at the same
// time, for each processor of the gateway. A handshake takes one or two milliseconds
// of a processor: so many are done within the second that they have by default
// although others take 29 of 30 parts of it. And on a way on which they take a tenth
// of a second, for which the processor is idle, they are still 160 a second.
const dialsPerProcessor = 16

const (
	// handshake is what a connection takes of a processor, or less.
	handshake = time.Millisecond
	// staggered is after how many times the time that the quickest dial took another
	// one begins beside those that keep the processors busy: they hang. Until one has
	// told what it takes, unknownDial is waited for.
	staggered, unknownDial = 4, 10 * time.Millisecond
)

const (
	// flowing is how long ago a connection may have come free at most for others
	// to be expected soon.
	flowing = 100 * time.Millisecond
	// minPatience and maxPatience bound how long they are waited for before one is
	// made. What takes less than the first, which is as exact as timers are, is made
	// at once.
	minPatience, maxPatience = time.Millisecond, 5 * time.Millisecond
	// lookEvery is how often it is looked whether somebody has waited for too long. To
	// be busy is to learn of what has come busyAfter later; it is over when that was
	// sooner for as long as calm.
	lookEvery, busyAfter, calm = time.Millisecond, time.Millisecond, 2 * time.Millisecond
	// starved is for how long somebody waits at most because the gateway is busy: then
	// one connection is made, and none for the others who wait until as long after it.
	starved = 50 * time.Millisecond
)

// graceShare: who waits is given up later than a dial that began with the wait,
// by this part of the time to connect, to be told in what that dial was stuck.
const graceShare = 20

// line are those who wait for a connection, and the dials for them. It is guarded
// by the mutex of direct.
type line struct {
	waits   list.List // of *wanted, who came first is first
	fresh   int       // how many of them want a new one only
	dialing int
	// dialTook is how long the last dial took, and later looks whether anybody has
	// waited for as long; nil: nobody did yet. It is set if pending says so.
	dialTook time.Duration
	later    *time.Timer
	pending  bool
	due      time.Time // when later is to be
	// busy is when the gateway was last found to be, and helped when somebody who
	// starved was.
	busy, helped time.Time
	// quickest is about how long the quickest dial took, of late, 0 before the first
	// one, and dialed when the last one began.
	quickest time.Duration
	dialed   time.Time
	// moved is when a connection was last made or came free.
	moved time.Time
	// failure is why a dial last failed, and when.
	failure error
	failed  time.Time
}

// wanted is a connection that a request waits for.
type wanted struct {
	began time.Time
	fresh bool          // only one that was not used before will do
	tired bool          // it has waited for so long that one is made for it
	place *list.Element // nil: it is not in line
	// anyway: connections will do that others have taken the place of.
	anyway bool
	// given is closed when one of these is there.
	given  chan struct{}
	conn   *directConn
	reused bool
	err    error
}

// behindError is of an attempt that ended before its turn to get a connection
// came, while others got theirs, or that waited for one which another has blamed the
// endpoint for: no fault more of the endpoint's.
type behindError struct{ err error }

func (e *behindError) Error() string { return "wait for a connection: " + e.err.Error() }
func (e *behindError) Unwrap() error { return e.err }

// wait waits for a connection; reused says that it was used before.
func (d *direct) wait(ctx context.Context, fresh bool) (c *directConn, reused bool, err error) {
	w := &wanted{began: time.Now(), fresh: fresh}
	for {
		c, reused, err = d.waitInLine(ctx, w)
		if err != errRetired {
			return c, reused, err
		}
		next, err := d.successor()
		if err != nil {
			return nil, false, err
		}
		// In the new line nothing has moved yet, and what did in the old one was no
		// connection for it: so its time is all of its time. And where nobody has
		// taken the place of the old ones, the endpoint is none any more, and they
		// have to do.
		w.began, w.anyway = time.Now(), next == d
		d = next
	}
}

// waitInLine is wait as long as the connections are not retired: then it returns
// errRetired.
func (d *direct) waitInLine(ctx context.Context, w *wanted) (*directConn, bool, error) {
	if c, err := d.enter(w); c != nil || err != nil {
		return c, true, err
	}
	patience := d.limit() + d.limit()/graceShare
	timer := time.NewTimer(patience - time.Since(w.began))
	defer timer.Stop()
	for {
		select {
		case <-w.given:
			return w.conn, w.reused, w.err
		case <-ctx.Done():
			return nil, false, d.leave(w, context.Cause(ctx), patience)
		case <-timer.C:
			left, err := d.expire(w, patience)
			if err != nil {
				return nil, false, err
			}
			timer.Reset(left)
		}
	}
}

// enter puts a request into the line, unless there is an idle connection. Where
// others have taken the place of the connections, no more of them are made: who
// came here just before would have one that was made with the old credentials.
func (d *direct) enter(w *wanted) (*directConn, error) {
	w.given = make(chan struct{})
	for {
		if !w.fresh {
			if c := d.take(); c != nil {
				return c, nil
			}
		}
		d.mu.Lock()
		if d.retired && !w.anyway {
			d.mu.Unlock()
			return nil, errRetired
		}
		if w.fresh || len(d.idle) == 0 {
			w.place = d.line.waits.PushBack(w)
			if w.fresh {
				d.line.fresh++
			}
			d.dialMore()
			d.mu.Unlock()
			return nil, nil
		}
		d.mu.Unlock() // it has just been put there
	}
}

// leave ends waiting because the attempt has ended, for which it returns the
// error. What it was given at the same time is for others.
func (d *direct) leave(w *wanted, cause error, patience time.Duration) error {
	d.mu.Lock()
	given := w.place == nil
	if !given {
		d.remove(w)
	}
	moved := d.line.moved
	d.mu.Unlock()
	if given && w.conn != nil {
		w.conn.pool.put(w.conn)
	}
	if moved.After(w.began) && time.Since(moved) < patience {
		return &behindError{cause}
	}
	return cause
}

// expire ends waiting in vain: if nothing moved for as long as patience lasts. If
// something did, it returns how long there is left to wait.
func (d *direct) expire(w *wanted, patience time.Duration) (time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	since := w.began
	if d.line.moved.After(since) {
		since = d.line.moved
	}
	if left := patience - time.Since(since); left > 0 || w.place == nil {
		return left, nil
	}
	d.remove(w)
	if d.line.failed.After(w.began) {
		// The text only: what that error is, another request was told.
		return 0, &ConnectError{fmt.Errorf("no connection within %v; the last try: %v", patience, d.line.failure)}
	}
	return 0, &ConnectError{fmt.Errorf("no connection within %v: %d are being made", patience, d.line.dialing)}
}

// first returns who is first in line for a connection; mu is held.
func (d *direct) first(reused bool) *wanted {
	for e := d.line.waits.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*wanted); !reused || !w.fresh {
			return w
		}
	}
	return nil
}

// give ends waiting; mu is held.
func (d *direct) give(w *wanted, c *directConn, reused bool, err error) {
	d.remove(w)
	w.conn, w.reused, w.err = c, reused, err
	close(w.given)
}

// remove takes a request out of the line; mu is held.
func (d *direct) remove(w *wanted) {
	d.line.waits.Remove(w.place)
	w.place = nil
	if w.fresh {
		d.line.fresh--
	}
}

// dialMore has connections made for those who wait; mu is held.
func (d *direct) dialMore() {
	if d.line.waits.Len() <= d.line.dialing {
		return
	}
	now := time.Now()
	for wanted := min(d.impatient(now), d.maxDials); d.line.dialing < wanted; {
		if left := d.hold(now); left > 0 {
			d.lookAgain(left)
			return
		}
		d.line.dialing++
		d.line.dialed = now
		go d.fly(now)
	}
}

// hold returns how long the next dial is held back for the sake of those that are
// under way; mu is held.
func (d *direct) hold(now time.Time) time.Duration {
	atOnce, apart := 2*d.processors, unknownDial
	if quickest := d.line.quickest; quickest > 0 {
		atOnce, apart = d.processors*int(quickest/handshake), staggered*quickest
	}
	if d.line.dialing < atOnce || apart < staggered*minPatience || d.processors == 0 {
		return 0
	}
	return apart - now.Sub(d.line.dialed)
}

// impatient counts those for whom a connection is to be made, up to maxDials, and
// sees to it that the others are looked at later; mu is held.
func (d *direct) impatient(now time.Time) int {
	all := d.line.waits.Len()
	if now.Sub(d.line.moved) >= flowing || d.line.dialTook < minPatience || d.line.fresh == all {
		return all
	}
	n := d.line.fresh
	for e := d.line.waits.Front(); e != nil && n < d.maxDials; e = e.Next() {
		w := e.Value.(*wanted)
		if !w.tired && !w.fresh {
			d.watch(now, d.patience()-now.Sub(w.began))
			break
		}
		if !w.fresh {
			n++
		}
	}
	return n
}

// watch has it looked again, for somebody whose patience will last for a time; mu is
// held.
func (d *direct) watch(now time.Time, left time.Duration) {
	if left > lookEvery || d.busy(now) {
		left = lookEvery
	}
	d.lookAgain(left)
}

// busy reports whether the processor is what all wait for; mu is held.
func (d *direct) busy(now time.Time) bool { return now.Sub(d.line.busy) < calm }

// patience is how long a connection that comes free is waited for; mu is held.
func (d *direct) patience() time.Duration { return min(d.line.dialTook, maxPatience) }

// lookAgain has look be called after a time, if it is not going to be sooner; mu is
// held.
func (d *direct) lookAgain(after time.Duration) {
	due := time.Now().Add(max(after, 0))
	if d.line.pending && !due.Before(d.line.due) {
		return
	}
	d.line.pending, d.line.due = true, due
	if d.line.later == nil {
		d.line.later = time.AfterFunc(after, d.look)
	} else {
		d.line.later.Reset(after)
	}
}

// look finds out whether the gateway is busy, and has connections made for those who
// have waited for long enough.
func (d *direct) look() {
	var late time.Duration
	if d.lateness != nil {
		late = d.lateness()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if late >= busyAfter {
		d.line.busy = now
	}
	d.line.pending = false
	d.tire(now)
	d.dialMore()
}

// tire finds those who have waited for long enough; mu is held.
func (d *direct) tire(now time.Time) {
	patience := d.patience()
	busy := d.busy(now)
	if busy {
		if now.Sub(d.line.helped) < starved {
			return
		}
		patience = starved
	}
	for e := d.line.waits.Front(); e != nil; e = e.Next() {
		w := e.Value.(*wanted)
		if w.tired {
			continue
		}
		if now.Sub(w.began) < patience {
			return
		}
		w.tired = true
		if busy {
			d.line.helped = now
			return
		}
	}
}

// fly makes a connection. Who asked for it may go away, and others still want it.
func (d *direct) fly(began time.Time) {
	limit := d.limit()
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, errSlow)
	defer cancel()
	conn, raw, err := d.dial(ctx)
	if err != nil {
		d.unmade(began, time.Since(began) >= limit, err)
		return
	}
	d.made(newDirectConn(d, conn, raw), time.Since(began))
}

// made gives a new connection, which took a time to make, to who is first in line.
func (d *direct) made(c *directConn, took time.Duration) {
	d.mu.Lock()
	d.line.dialing--
	d.line.dialTook = took
	if quickest := d.line.quickest; quickest > 0 {
		took = min(took, quickest+quickest/64) // slower in the end, if all are
	}
	d.line.quickest = took
	d.line.moved = time.Now()
	w := d.first(false)
	if w != nil {
		d.give(w, c, false, nil)
	}
	d.dialMore()
	d.mu.Unlock()
	if w == nil {
		d.put(c)
	}
}

// unmade tells that a dial failed to those whom it concerns: of those who waited
// when it began, the first, as if it were its own; and all of them if it says that
// nobody is there, by a refusal or by silence until its time was over, which is
// theirs as well. It does not say that if another connection was made or came free
// meanwhile; and the silence of a dial is then nothing at all, but its own.
func (d *direct) unmade(began time.Time, slow bool, err error) {
	d.mu.Lock()
	d.line.dialing--
	d.line.failure, d.line.failed = err, time.Now()
	moved := d.line.moved.After(began)
	told := 0
	if !slow || !moved {
		told = d.tell(began, err, !moved && (slow || decisive(err)))
	}
	unheard := told == 0 && !(slow && moved) && !d.retired
	d.dialMore()
	d.mu.Unlock()
	if unheard {
		d.broken()
	}
}

// tell fails the first, or all, of those who waited at a time, and returns how
// many that are; mu is held.
func (d *direct) tell(at time.Time, err error, all bool) (told int) {
	for e := d.line.waits.Front(); e != nil && (all || told == 0); {
		w := e.Value.(*wanted)
		e = e.Next()
		if w.began.After(at) {
			continue
		}
		d.give(w, nil, false, err)
		told++
	}
	return told
}
