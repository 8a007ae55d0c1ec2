package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"portico/resource"
)

const (
	// askAgain is the time between requests for progress until one is answered: etcd
	// ignores them while the watch lags.
	askAgain = 100 * time.Millisecond
	// silence is how long a member may send nothing after progress was requested. The next
	// stream uses another member; a connection to one that hangs lasts much longer.
	silence = 2 * time.Second
	// confirmation is how long a member may take to confirm the watch.
	confirmation = 5 * time.Second
	// quiet is how long a stream may receive nothing before etcd's revision is read, to
	// see whether events are missing.
	quiet = 5 * time.Second
	// maxResponses is how many responses may be queued; queued ones are applied together.
	maxResponses = 16
)

// errSilent is the error of a stream if its member does not send what it should.
var errSilent = errors.New("etcd does not answer on its watch stream")

// watchStream is one watch of etcd over the whole span of a feed's ranges. Changes of other
// keys are received and dropped, which is cheaper than a watch for each range: those are
// ordered only by progress notifications after every change. Whatever is wrong with the
// connection, the stream ends in bounded time after a change that it has not received: it
// reads etcd's revision and requests progress.
type watchStream struct {
	feed *feed
	sink resource.FeedSink
	conn *watchConn
	// opened is set when the connection has the stream, created when etcd has confirmed
	// the watch.
	opened, created bool
	// rev is the revision up to which every change was received, passed the one that was
	// passed to the sink.
	rev, passed int64
	// requested is set while the sink waits for progress, asking while a request for progress
	// is not answered.
	requested, asking bool
	// active is when something was last received, or progress first requested; again is
	// when progress is requested next.
	active, again time.Time
	// current reads etcd's revision; checked receives the result. checking is set
	// meanwhile.
	current  func(context.Context) (int64, error)
	checked  chan revisionResult
	checking bool
}

// revisionResult is the result of reading etcd's revision.
type revisionResult struct {
	rev int64
	err error
}

func newWatchStream(f *feed, sink resource.FeedSink) *watchStream {
	rev := f.delivered.Load()
	return &watchStream{
		feed: f, sink: sink, conn: newWatchConn(), rev: rev, passed: rev, current: f.Current, checked: make(chan revisionResult, 1),
	}
}

// stream watches all ranges from the delivered revision on. Its error is errHistory if it
// cannot resume there.
func (f *feed) stream(ctx context.Context, sink resource.FeedSink) error {
	ctx, cancel := context.WithCancel(ctx)
	s := newWatchStream(f, sink)
	span := keyRange{f.ranges[0].start, f.ranges[len(f.ranges)-1].end}
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { s.conn.ended <- f.watchSpan(ctx, s.conn, span, s.rev) })
	return s.loop(ctx)
}

func (s *watchStream) loop(ctx context.Context) error {
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	opened := s.conn.opened
	for {
		var err error
		select {
		case <-opened:
			opened, s.opened, s.active = nil, true, time.Now()
		case resp := <-s.conn.responses:
			err = s.receive(resp)
		case err = <-s.conn.ended:
		case <-s.feed.progress:
			s.requested = true
			s.askProgress()
		case <-timer.C:
			err = s.overdue(ctx)
		case now := <-s.checked:
			err = s.compare(now)
		case <-s.feed.regressed:
			err = errHistory
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		timer.Reset(s.patience())
	}
}

// patience returns the time until something is overdue.
func (s *watchStream) patience() time.Duration {
	switch {
	case s.opened && !s.created:
		return time.Until(s.active.Add(confirmation))
	case s.asking && !s.checking:
		return time.Until(s.again)
	case s.opened && !s.checking:
		return max(askAgain, time.Until(s.active.Add(quiet)))
	}
	return quiet
}

// askProgress requests progress from etcd once the watch is created.
func (s *watchStream) askProgress() {
	if !s.asking {
		s.asking, s.active = true, time.Now()
		s.again = s.active.Add(askAgain)
	}
	if s.created {
		signal(s.conn.ask)
	}
}

// overdue is called when nothing was received for s.patience(). An error ends the stream.
func (s *watchStream) overdue(ctx context.Context) error {
	since := time.Since(s.active)
	s.again = time.Now().Add(askAgain)
	switch {
	case !s.opened || len(s.conn.responses) > 0: // this process is slow, not etcd
	case !s.created:
		if since >= confirmation {
			return errSilent
		}
	case s.asking && since <= silence:
		s.askProgress()
	case s.asking || since >= quiet:
		s.check(ctx)
	}
	return nil
}

// check reads etcd's revision.
func (s *watchStream) check(ctx context.Context) {
	if s.checking {
		return
	}
	s.checking = true
	go func() {
		rev, err := s.current(ctx)
		s.checked <- revisionResult{rev, err}
	}()
}

// compare compares etcd's revision with the stream's. A member does not answer a request
// for progress if nothing has changed since the watch began.
func (s *watchStream) compare(now revisionResult) error {
	s.checking = false
	switch {
	case now.err == nil && now.rev <= s.rev:
		s.active = time.Now()
		s.progressed()
	case s.asking && time.Since(s.active) > silence:
		return errSilent
	case now.err == nil && !s.asking:
		s.askProgress()
	}
	return nil
}

// receive applies a response and those queued after it. An error ends the stream.
func (s *watchStream) receive(resp *etcdserverpb.WatchResponse) error {
	s.active = time.Now()
	var changes []resource.Change
	answered := false
	for waiting := len(s.conn.responses); ; waiting-- {
		switch {
		case resp.CompactRevision != 0:
			return errHistory
		case resp.Canceled:
			return fmt.Errorf("etcd canceled the watch: %s", resp.CancelReason)
		case resp.Created:
			if s.created = true; s.asking {
				s.askProgress()
			}
		case len(resp.Events) > 0:
			changes = s.feed.appendChanges(changes, resp.Events)
			s.rev = max(s.rev, resp.Events[len(resp.Events)-1].Kv.ModRevision)
		default:
			answered = true
			s.rev = max(s.rev, resp.GetHeader().GetRevision())
		}
		if waiting == 0 {
			break
		}
		resp = <-s.conn.responses
	}
	if len(changes) > 0 {
		s.sink.Apply(changes)
		s.passed = changes[len(changes)-1].Revision
	}
	if answered {
		s.feed.metrics.progress.Inc()
		s.progressed()
	}
	s.feed.delivered.Store(s.rev)
	return nil
}

// progressed passes rev to the sink.
func (s *watchStream) progressed() {
	if s.requested || s.rev > s.passed {
		s.sink.Progress(s.rev)
		s.passed = s.rev
	}
	s.requested, s.asking = false, false
}

// watchConn is the gRPC stream of a watch. The watcher of etcd's client reconnects by itself
// and queues responses without bound; this one slows etcd down.
type watchConn struct {
	// opened is closed once a connection has the stream.
	opened chan struct{}
	// responses are etcd's responses; ended receives the error that ends them.
	responses chan *etcdserverpb.WatchResponse
	ended     chan error
	// ask requests progress.
	ask chan struct{}
}

func newWatchConn() *watchConn {
	return &watchConn{
		opened: make(chan struct{}), responses: make(chan *etcdserverpb.WatchResponse, maxResponses),
		ended: make(chan error, 1), ask: make(chan struct{}, 1),
	}
}

// watchSpan watches a span of keys after a revision until the stream fails or ctx ends.
// It waits for a connection.
func (c *Client) watchSpan(ctx context.Context, w *watchConn, span keyRange, since int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	stream, err := etcdserverpb.NewWatchClient(c.etcd.ActiveConnection()).Watch(ctx,
		grpc.WaitForReady(true), grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32))
	if err != nil {
		return err
	}
	close(w.opened)
	asking.Go(func() { sendRequests(ctx, stream, w.ask, span, since) })
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case w.responses <- resp:
		case <-ctx.Done():
			// Recv is called until it fails, which releases the stream.
		}
	}
}

// sendRequests requests the watch, then progress for each receive from ask. Recv returns its
// errors. Fragments are not requested, so that each response has whole revisions.
func sendRequests(ctx context.Context, stream etcdserverpb.Watch_WatchClient, ask <-chan struct{}, span keyRange, since int64) {
	request := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{
		CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte(span.start), RangeEnd: []byte(span.end), StartRevision: since + 1},
	}}
	progress := &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}}
	for stream.Send(request) == nil {
		select {
		case <-ask:
			request = progress
		case <-ctx.Done():
			return
		}
	}
}
