package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

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
	// share one. A change on its own waits for nothing but the answer.
	askPause = 2 * time.Millisecond
	// askTries bounds the requests for one RequestProgress; readers who wait
	// have turned elsewhere by then. While changes are held back there is no bound.
	askTries = 30
	// silence is how long a member may leave such requests unanswered, and send
	// nothing else, before the stream is taken to another. A member that hangs
	// keeps its connection for much longer.
	silence = 2 * time.Second
)

// errSilent ends a stream whose member does not answer.
var errSilent = errors.New("etcd does not answer requests for progress")

// stream is one run of a feed over an uninterrupted connection.
type stream struct {
	feed  *feed
	sink  resource.FeedSink
	merge merge
	// ask has the asker send a request for progress.
	ask chan struct{}
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
	// it had nothing to answer.
	heard time.Time
}

// arrival is what the watch of one range sent.
type arrival struct {
	index int
	resp  clientv3.WatchResponse
}

// stream watches all ranges from the delivered revision on. It returns why it
// ended: errHistory when it makes no sense to go on from there.
func (f *feed) stream(ctx context.Context, sink resource.FeedSink) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	// A client of its own for the watches gives the feed a connection stream
	// that no other watch shares or holds up.
	watches := clientv3.NewWatcher(f.etcd)
	arrivals := make(chan arrival)
	since := f.delivered.Load()
	s := &stream{feed: f, sink: sink, merge: newMerge(len(f.ranges), since), ask: make(chan struct{}, 1)}

	var running sync.WaitGroup
	defer running.Wait()
	defer watches.Close()
	defer cancel()
	for i := range f.ranges {
		running.Go(func() { f.watchRange(ctx, watches, i, since, arrivals) })
	}
	running.Go(func() {
		for {
			select {
			case <-s.ask:
				// Blocks while the connection is down; then nothing is to be
				// had anyway.
				_ = watches.RequestProgress(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return s.loop(ctx, arrivals)
}

// watchRange passes on what the watch of one range sends until it ends. The
// last arrival is an error.
func (f *feed) watchRange(ctx context.Context, watches clientv3.Watcher, index int, since int64, out chan<- arrival) {
	// Fragments are left off: a response then always holds whole revisions.
	r := f.ranges[index]
	responses := watches.Watch(ctx, r.start, clientv3.WithRange(r.end),
		clientv3.WithRev(since+1), clientv3.WithProgressNotify())
	for {
		resp, ok := <-responses
		if !ok {
			resp = clientv3.WatchResponse{Canceled: true, CancelReason: "the watch was closed"}
		}
		select {
		case out <- arrival{index, resp}:
		case <-ctx.Done():
			return
		}
		if !ok || resp.Err() != nil {
			return
		}
	}
}

func (s *stream) loop(ctx context.Context, arrivals <-chan arrival) error {
	again := time.NewTicker(askAgain)
	defer again.Stop()
	s.due = time.NewTimer(time.Hour)
	defer s.due.Stop()
	for {
		select {
		case a := <-arrivals:
			if err := a.resp.Err(); isCompacted(err) {
				return errHistory
			} else if err != nil {
				return err
			}
			s.heard = time.Now()
			s.take(a)
		case <-s.feed.wanted:
			s.wanted = true
			s.await()
		case <-s.due.C:
			s.askNow()
		case <-again.C:
			if s.tries == 0 && !s.merge.holding() {
				continue
			}
			if time.Since(s.heard) > silence {
				return errSilent
			}
			s.tries = max(0, s.tries-1)
			s.askNow()
		case <-s.feed.regressed:
			return errHistory
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// await asks for progress until it is answered.
func (s *stream) await() {
	if s.tries == 0 {
		s.heard = time.Now()
	}
	s.tries = askTries
	if pause := askPause - time.Since(s.asked); s.crowded && pause > 0 {
		s.due.Reset(pause)
		return
	}
	s.askNow()
}

func (s *stream) askNow() {
	s.asked = time.Now()
	signal(s.ask)
}

// take merges what arrived and delivers what is known to be complete.
func (s *stream) take(a arrival) {
	rev, answered := a.resp.Header.Revision, false
	if a.resp.IsProgressNotify() {
		s.merge.progress(a.index, rev)
		// An answer reaches every range; the last one completes it.
		answered = s.merge.safe() >= rev
	} else if n := len(a.resp.Events); n > 0 {
		s.merge.events(a.index, a.resp.Events[n-1].Kv.ModRevision, s.feed.changes(a.resp.Events))
	}
	if changes := s.merge.release(); len(changes) > 0 {
		s.crowded = len(changes) > 1
		s.sink.Apply(changes)
	}
	if answered {
		s.feed.metrics.progress.Inc()
		if s.wanted || s.merge.safe() > s.feed.delivered.Load() {
			s.sink.Progress(s.merge.safe())
		}
		s.tries, s.wanted = 0, false
	}
	s.feed.delivered.Store(s.merge.safe())
	if s.merge.holding() && s.tries == 0 {
		// Something waits to hear that the other ranges have come as far.
		s.await()
	}
}
