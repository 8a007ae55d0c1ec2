package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

const (
	// firstChunk is the maximum number of keys of the first page of a range. The sizes of
	// its values are unknown: they may have 1.5 MiB each.
	firstChunk = 16
	// growth is how many times more keys a page may hold than the page before.
	growth = 4
	// maxChunk is the maximum number of keys of any page.
	maxChunk = 50000
	// pageBytes is the approximate size of the values of a page. It bounds the memory that
	// reading a range takes besides the objects made of it.
	pageBytes = 8 << 20
	// maxPageBytes is the maximum size of a page of several keys. A larger one is not
	// received, and fewer keys are requested: the sizes seen say little about the next.
	maxPageBytes = 4 * pageBytes
)

// readTimeouts are the timeouts of the first attempts of a read. A read without a response in
// this time is canceled and sent again, which the balancer does on the next member that it has a
// connection to. A member that hangs keeps its connection, and its share of the requests, until
// keep-alive fails. After a start it may be the only one for a second or two, so the last attempt
// begins after 2.5 s. It lasts as long as the read may: on a slow network a page takes seconds.
var readTimeouts = []time.Duration{500 * time.Millisecond, time.Second, time.Second}

// read reads a key, or a page of a range, and counts it under op.
func (c *Client) read(ctx context.Context, scope *scope, op operation, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := time.Now()
	resp, err := c.attempt(ctx, key, opts...)
	scope.count(ctx, op, start, err)
	return resp, err
}

func (c *Client) attempt(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if len(c.etcd.Endpoints()) > 1 {
		for _, limit := range readTimeouts {
			bounded, cancel := context.WithTimeout(ctx, limit)
			resp, err := c.etcd.Get(bounded, key, opts...)
			end, _ := bounded.Deadline()
			cancel()
			// gRPC may notice the end before the timer of bounded does.
			if err == nil || ctx.Err() != nil || time.Now().Before(end) {
				return resp, err
			}
		}
	}
	return c.etcd.Get(ctx, key, opts...)
}

// pager sizes the pages of a range: few keys at first, then more each time, but no more
// than are likely to fit pageBytes. The zero pager is at the first page.
type pager struct {
	requested int64 // keys of the last page
	// tooLarge is set if the last page was too large.
	tooLarge    bool
	keys, bytes int64 // read so far
	average     int64 // size of the last page's values
}

// next returns the number of keys of the next page, at most limit; 0 means no limit.
func (p *pager) next(limit int64) int64 {
	n := min(growth*p.requested, maxChunk)
	switch {
	case p.tooLarge:
		n = max(1, p.requested/growth)
	case p.requested == 0:
		n = firstChunk
	}
	if p.bytes > 0 {
		n = max(1, min(n, pageBytes/max(1, p.average, p.bytes/p.keys)))
	}
	if limit > 0 {
		n = min(n, limit)
	}
	p.requested, p.tooLarge = n, false
	return n
}

// received adds the sizes of a page.
func (p *pager) received(kvs []*mvccpb.KeyValue) {
	if len(kvs) == 0 {
		return
	}
	size := int64(0)
	for _, kv := range kvs {
		size += int64(len(kv.Value))
	}
	p.average = size / int64(len(kvs))
	p.keys += int64(len(kvs))
	p.bytes += size
}

// page reads the next page of a range, of at most limit keys; 0 means no limit.
func (c *Client) page(ctx context.Context, scope *scope, p *pager, limit int64, r keyRange, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	for {
		n := p.next(limit)
		resp, err := c.read(ctx, scope, opList, r.start, append(slices.Clip(opts), clientv3.WithRange(r.end), clientv3.WithLimit(n))...)
		if n > 1 && isTooMuch(err) {
			p.tooLarge = true
			continue
		}
		if err == nil {
			p.received(resp.Kvs)
		}
		return resp, err
	}
}

// isTooMuch reports whether a response was too large to be received.
func isTooMuch(err error) bool {
	return err != nil && errorCode(err) == codes.ResourceExhausted && !isError(err, rpctypes.ErrTooManyRequests, rpctypes.ErrNoSpace)
}

// boundedKV does not receive pages above most bytes: gRPC compares the length of a
// response before it allocates memory for it.
type boundedKV struct {
	etcdserverpb.KVClient
	most int
}

// Range reads a key or a page.
func (b boundedKV) Range(ctx context.Context, in *etcdserverpb.RangeRequest, opts ...grpc.CallOption) (*etcdserverpb.RangeResponse, error) {
	if in.Limit > 1 {
		opts = append(slices.Clip(opts), grpc.MaxCallRecvMsgSize(b.most))
	}
	return b.KVClient.Range(ctx, in, opts...)
}

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
