package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/resource"
)

const (
	// askAgain is the time after which etcd is asked for progress again. It
	// ignores the request while one of the stream's watches lags.
	askAgain = 100 * time.Millisecond
	// askPause is the least time between two requests for progress while one
	// answer releases several changes at a time: with many ranges a request costs
	// as much as a change itself, and changes that come in close succession may
	// share one. A change on its own waits for nothing but the answer. Where readers
	// wait for the answer, it is askSoon.
	askPause = 10 * time.Millisecond
	askSoon  = 2 * time.Millisecond
	// askTries bounds the requests for one RequestProgress; readers who wait
	// have turned elsewhere by then. While changes are held back there is no bound.
	askTries = 30
	// silence is how long a member may leave such requests unanswered, and send
	// nothing else, before the stream is taken to another. A member that hangs
	// keeps its connection for much longer.
	silence = 2 * time.Second
	// confirmation is how long a member may send nothing at all while it has not
	// confirmed all watches.
	confirmation = 5 * time.Second
	// quiet is how long a stream may hear nothing before it is found out, by a
	// read, whether there is something that it ought to have heard.
	quiet = 5 * time.Second
)

// errSilent ends a stream whose member does not tell what it should.
var errSilent = errors.New("etcd does not answer on its watch stream")

// stream is one run of a feed over an uninterrupted conversation. Whatever is
// wrong with that, the stream ends in bounded time after a change that it has
// not heard of: it trusts no connection, but asks (check).
type stream struct {
	feed  *feed
	sink  resource.FeedSink
	wire  *wire
	merge merge
	// unconfirmed is how many watches etcd has not confirmed. Until it has all,
	// nothing is asked: an answer might pass what has come for the others.
	unconfirmed int
	// tries is how often etcd may still be asked; above 0 while an answer is
	// awaited.
	tries int
	// wanted says that the sink waits for the answer too.
	wanted bool
	// asked is when etcd was last asked; crowded says that the answer released
	// several changes. due has etcd asked later (askPause).
	asked   time.Time
	crowded bool
	due     *time.Timer
	// heard is when something last arrived, or when etcd was first asked after
	// it had nothing to answer. again fires at wake to look how long that is.
	heard time.Time
	again *time.Timer
	wake  time.Time
	// current reads etcd's revision; checked receives it. checking says that it
	// is under way.
	current  func(context.Context) (int64, error)
	checked  chan finding
	checking bool
}

// finding is what a read of etcd's revision gave.
type finding struct {
	rev int64
	err error
}

func newStream(f *feed, sink resource.FeedSink) *stream {
	return &stream{
		feed: f, sink: sink, wire: newWire(), merge: newMerge(len(f.ranges), f.delivered.Load()),
		unconfirmed: len(f.ranges), current: f.Current, checked: make(chan finding, 1),
	}
}

// stream watches all ranges from the delivered revision on. It returns why it
// ended: errHistory when it makes no sense to go on from there.
func (f *feed) stream(ctx context.Context, sink resource.FeedSink) error {
	ctx, cancel := context.WithCancel(ctx)
	s, since := newStream(f, sink), f.delivered.Load()
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { s.wire.ended <- f.converse(ctx, s.wire, f.ranges, since) })
	return s.loop(ctx)
}

func (s *stream) loop(ctx context.Context) error {
	s.due, s.again = time.NewTimer(time.Hour), time.NewTimer(time.Hour)
	defer s.due.Stop()
	defer s.again.Stop()
	opened := s.wire.opened
	for {
		var err error
		select {
		case <-opened:
			opened, s.heard = nil, time.Now()
			s.wakeIn(confirmation)
		case resp := <-s.wire.arrivals:
			err = s.arrived(resp)
		case err = <-s.wire.ended:
		case <-s.feed.wanted:
			s.wanted = true
			s.await()
		case <-s.due.C:
			if s.awaiting() {
				s.askNow()
			}
		case <-s.again.C:
			s.wake = time.Time{}
			select {
			case resp := <-s.wire.arrivals: // this process was the slow one
				s.wakeIn(askAgain)
				err = s.arrived(resp)
			default:
				err = s.missed(ctx)
			}
		case now := <-s.checked:
			err = s.judge(now)
		case <-s.feed.regressed:
			err = errHistory
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// awaiting reports whether etcd owes an answer.
func (s *stream) awaiting() bool { return s.tries > 0 || s.merge.holding() }

// await asks for progress until it is answered.
func (s *stream) await() {
	if s.tries == 0 {
		s.heard = time.Now()
	}
	s.tries = askTries
	pause := askPause
	if s.wanted {
		pause = askSoon
	}
	if pause -= time.Since(s.asked); s.crowded && pause > 0 {
		s.due.Reset(pause)
		return
	}
	s.askNow()
}

func (s *stream) askNow() {
	if s.unconfirmed > 0 {
		return // the last confirmation has it asked
	}
	s.asked = time.Now()
	signal(s.wire.ask)
	s.wakeIn(askAgain)
}

// wakeIn has the stream look in that time at the latest.
func (s *stream) wakeIn(d time.Duration) {
	if at := time.Now().Add(d); s.wake.IsZero() || at.Before(s.wake) {
		s.wake = at
		s.again.Reset(d)
	}
}

// missed does what is due when nothing has come for a while. Its error ends the
// stream.
func (s *stream) missed(ctx context.Context) error {
	since := time.Since(s.heard)
	switch {
	case s.unconfirmed > 0:
		if since >= confirmation {
			return errSilent
		}
		s.wakeIn(confirmation - since)
	case s.merge.holding() && since > silence:
		return errSilent
	case s.awaiting() && since <= silence:
		s.tries = max(0, s.tries-1)
		s.askNow()
	case since >= quiet || s.awaiting():
		s.check(ctx)
		s.wakeIn(quiet)
	default:
		s.wakeIn(quiet - since)
	}
	return nil
}

// check has etcd's revision read.
func (s *stream) check(ctx context.Context) {
	if s.checking {
		return
	}
	s.checking = true
	go func() {
		rev, err := s.current(ctx)
		s.checked <- finding{rev, err}
	}()
}

// judge compares what etcd is known to have with what the stream has told. A
// member has no answer about progress while nothing has happened since the
// watches began.
func (s *stream) judge(now finding) error {
	s.checking = false
	silent := s.awaiting() && time.Since(s.heard) > silence
	switch {
	case now.err == nil && now.rev <= s.merge.safe():
		s.heard = time.Now()
		s.answered(s.merge.safe())
	case silent:
		return errSilent
	case now.err == nil && !s.awaiting():
		s.await()
	}
	return nil
}

// arrived takes what has arrived, and what came with it.
func (s *stream) arrived(resp *etcdserverpb.WatchResponse) error {
	s.heard = time.Now()
	answered := false
	for more := len(s.wire.arrivals); ; more-- {
		answer, err := s.take(resp)
		if err != nil {
			return err
		}
		answered = answered || answer
		if more == 0 {
			s.deliver(answered)
			return nil
		}
		resp = <-s.wire.arrivals
	}
}

// take notes what a response says. An answer is one about the progress of all
// ranges; an error ends the stream.
func (s *stream) take(resp *etcdserverpb.WatchResponse) (answer bool, err error) {
	rev, index := resp.GetHeader().GetRevision(), rangeOf(resp.WatchId)
	switch n := len(resp.Events); {
	case resp.CompactRevision != 0:
		return false, errHistory
	case resp.Canceled:
		return false, fmt.Errorf("etcd ended a watch: %s", resp.CancelReason)
	case resp.WatchId == clientv3.InvalidWatchID:
		s.merge.progressAll(rev)
		return true, nil
	case index < 0 || index >= len(s.merge.pos):
		return false, fmt.Errorf("etcd tells of a watch %d that there is not", resp.WatchId)
	case resp.Created:
		if s.unconfirmed--; s.unconfirmed == 0 && s.awaiting() {
			s.askNow()
		}
	case n > 0:
		s.merge.events(index, resp.Events[n-1].Kv.ModRevision, s.feed.changes(resp.Events))
	default:
		s.merge.progress(index, rev)
		return s.merge.safe() >= rev, nil
	}
	return false, nil
}

// deliver hands on what is known to be complete. answered says that etcd has told
// how far all ranges have come.
func (s *stream) deliver(answered bool) {
	known := s.feed.delivered.Load()
	if changes := s.merge.release(); len(changes) > 0 {
		s.crowded = len(changes) > 1
		s.sink.Apply(changes)
		known = changes[len(changes)-1].Revision
	}
	if answered {
		s.feed.metrics.progress.Inc()
		s.answered(known)
	}
	s.feed.delivered.Store(s.merge.safe())
	if s.merge.holding() && s.tries == 0 {
		// Something waits to hear that the other ranges have come as far.
		s.await()
	}
}

// answered tells the sink, which knows of known, that all is told up to what is
// safe.
func (s *stream) answered(known int64) {
	if s.wanted || s.merge.safe() > known {
		s.sink.Progress(s.merge.safe())
	}
	s.tries, s.wanted = 0, false
}
