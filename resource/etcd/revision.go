package etcd

import (
	"context"
	"sync"
	"time"
)

// revisionProbe is the key read for the sake of the answer's header. It need
// not exist.
const revisionProbe = "portico_revision"

// readRevision makes a linearizable read of the store's revision.
func (c *Client) readRevision(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	resp, err := c.hedgedGet(ctx, hedgeRevision, revisionProbe)
	c.own.note(ctx, opRevision, start, err)
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// While several callers at a time ask, a linearizable read is followed by a pause
// in which more gather: gatherTime for each that shared the read, up to
// maxGatherTime. A read costs etcd and its client as much as serving several
// objects from memory: what waiting a little adds to the latency of each caller,
// sharing takes off the load of all. One caller at a time never waits.
const (
	gatherTime    = 200 * time.Microsecond
	maxGatherTime = 2 * time.Millisecond
)

// sharedRevision lets any number of callers share linearizable reads. A read
// that has begun proves nothing about a write acknowledged since, so a caller
// never joins one: it gathers with others for the next, which begins when the
// running one ends.
type sharedRevision struct {
	ctx  context.Context // bounds the reads; they outlive single callers
	read func(context.Context) (int64, error)

	mu        sync.Mutex
	running   bool
	gathering *revisionRead
}

type revisionRead struct {
	done    chan struct{}
	callers int
	rev     int64
	err     error
}

func newSharedRevision(ctx context.Context, read func(context.Context) (int64, error)) *sharedRevision {
	return &sharedRevision{ctx: ctx, read: read}
}

// current returns the result of a read that begins after the call. Errors are
// StatusErrors.
func (s *sharedRevision) current(ctx context.Context) (int64, error) {
	r := s.join()
	select {
	case <-r.done:
		return r.rev, asStatus(ctx, r.err)
	case <-ctx.Done():
		return 0, asStatus(ctx, ctx.Err())
	}
}

func (s *sharedRevision) join() *revisionRead {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gathering == nil {
		s.gathering = &revisionRead{done: make(chan struct{})}
	}
	r := s.gathering
	r.callers++
	if !s.running {
		s.running = true
		go s.run()
	}
	return r
}

// run reads the revision again and again until no caller waits.
func (s *sharedRevision) run() {
	for {
		s.mu.Lock()
		r := s.gathering
		s.gathering = nil
		if r == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		r.rev, r.err = s.read(s.ctx)
		close(r.done)
		// No more callers: it has begun.
		if r.callers > 1 {
			time.Sleep(min(time.Duration(r.callers)*gatherTime, maxGatherTime))
		}
	}
}
