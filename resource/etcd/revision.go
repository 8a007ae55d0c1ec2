package etcd

import (
	"context"
	"sync"
	"time"
)

// revisionKey is the key that reads of the revision and probes of the breaker read. It need
// not exist.
const revisionKey = "portico_revision"

// readRevision makes a linearizable read of the store's revision.
func (c *Client) readRevision(ctx context.Context) (int64, error) {
	resp, err := c.read(ctx, &c.scope, opRevision, revisionKey)
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// A read that was shared is followed by a pause in which more callers join the next one:
// gatherTime for each caller that shared it, at most maxGatherTime. A read costs etcd and
// its client as much as serving several objects from memory, so under load sharing saves
// more than the pause costs. A single caller never waits.
const (
	gatherTime    = 200 * time.Microsecond
	maxGatherTime = 2 * time.Millisecond
)

// sharedRevision shares linearizable reads among callers. A read in progress says nothing
// about writes acknowledged since it began, so callers wait for the next one, which begins
// when it ends. Safe for concurrent use.
type sharedRevision struct {
	ctx  context.Context // bounds the reads; they outlive single callers
	read func(context.Context) (int64, error)

	mu      sync.Mutex
	running bool
	next    *revisionRead
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
	if s.next == nil {
		s.next = &revisionRead{done: make(chan struct{})}
	}
	r := s.next
	r.callers++
	if !s.running {
		s.running = true
		go s.run()
	}
	return r
}

// run reads the revision until no caller waits.
func (s *sharedRevision) run() {
	for {
		s.mu.Lock()
		r := s.next
		s.next = nil
		if r == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		r.rev, r.err = s.read(s.ctx)
		close(r.done)
		if r.callers > 1 {
			time.Sleep(min(time.Duration(r.callers)*gatherTime, maxGatherTime))
		}
	}
}
