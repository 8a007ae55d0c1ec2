package etcd

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/resource"
)

// feedPause is the pause of a feed after a failure.
const feedPause = 250 * time.Millisecond

// errHistory is the error of a stream that cannot resume at the delivered revision: events
// were compacted, or etcd was restored to an earlier state.
var errHistory = errors.New("history is no longer kept")

// feed is a Feed over ranges of one etcd.
type feed struct {
	*Client
	ranges []keyRange // disjoint, ascending
	// largeResource and sealedPause are the constants, in tests less.
	largeResource int
	sealedPause   time.Duration
	// progress is set by RequestProgress.
	progress chan struct{}
	// delivered is the revision up to which the sink has received everything.
	delivered atomic.Int64
	// regressed is set when etcd's revision is below delivered, or what was delivered is wrong.
	regressed chan struct{}
	sealed    sealed
}

// Feed returns a feed over storage path prefixes below Config.Prefix (such as
// "configmaps/"); without any, over everything. One watch of etcd covers all ranges and
// the keys between them. Values that cannot be read are delivered as such, and logged.
func (c *Client) Feed(ranges ...string) resource.Feed {
	f := &feed{Client: c, largeResource: largeResource, sealedPause: sealedPause, progress: make(chan struct{}, 1), regressed: make(chan struct{}, 1)}
	if len(ranges) == 0 {
		ranges = []string{""}
	}
	for _, r := range ranges {
		f.ranges = append(f.ranges, prefixRange(c.prefix+r))
	}
	f.ranges = joinRanges(f.ranges)
	return f
}

// FeedExcept returns a feed over everything below Config.Prefix except the given storage
// path prefixes (such as "configmaps/"), at least one. It is for a server with
// resources that change at run time: one fixed set of ranges holds all of them.
func (c *Client) FeedExcept(excluded ...string) resource.Feed {
	var out []keyRange
	for _, r := range excluded {
		out = append(out, prefixRange(c.prefix+r))
	}
	f := c.Feed()
	f.(*feed).ranges = gaps(prefixRange(c.prefix), joinRanges(out))
	return f
}

// gaps returns whole without the ranges, which are disjoint and ascending.
func gaps(whole keyRange, ranges []keyRange) []keyRange {
	var out []keyRange
	start := whole.start
	for _, r := range ranges {
		if start < r.start {
			out = append(out, keyRange{start, r.start})
		}
		start = max(start, r.end)
	}
	if start < whole.end {
		out = append(out, keyRange{start, whole.end})
	}
	return out
}

// joinRanges sorts ranges and joins adjacent and overlapping ones.
func joinRanges(ranges []keyRange) []keyRange {
	slices.SortFunc(ranges, func(a, b keyRange) int { return strings.Compare(a.start, b.start) })
	out := ranges[:1]
	for _, r := range ranges[1:] {
		if last := &out[len(out)-1]; r.start <= last.end {
			last.end = max(last.end, r.end)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// Run delivers to sink until ctx ends.
func (f *feed) Run(ctx context.Context, sink resource.FeedSink) error {
	ctx, cancel := context.WithCancel(ctx)
	var retrying sync.WaitGroup
	defer retrying.Wait()
	defer cancel()
	retrying.Go(func() { f.retrySealed(ctx) })
	for {
		err := f.follow(ctx, sink)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errHistory) {
			f.log.Warn("feed cannot resume and reads its range again", "revision", f.delivered.Load())
		} else {
			f.log.Warn("feed cannot read its range; retrying", "error", err)
		}
		if err := f.pause(ctx); err != nil {
			return err
		}
	}
}

// follow resets the sink and streams to it. Its error is errHistory if the stream cannot resume.
func (f *feed) follow(ctx context.Context, sink resource.FeedSink) error {
	later, err := f.reset(ctx, sink)
	if err != nil {
		return err
	}
	if len(later) > 0 {
		loading, cancel := context.WithCancel(ctx)
		l := &loader{feed: f, rev: f.delivered.Load(), PartialSink: sink.(resource.PartialSink), loading: later}
		var running sync.WaitGroup
		running.Go(func() { l.load(loading) })
		defer running.Wait()
		defer cancel()
		sink = l
	}
	for {
		err := f.stream(ctx, sink)
		if ctx.Err() != nil || errors.Is(err, errHistory) {
			return err
		}
		f.log.Info("feed was interrupted and resumes", "revision", f.delivered.Load(), "error", err)
		if err := f.pause(ctx); err != nil {
			return err
		}
	}
}

// pause waits before another attempt, at least until etcd is no longer silent.
func (f *feed) pause(ctx context.Context) error {
	f.breaker.wait(ctx)
	return pause(ctx, feedPause)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reset reads all ranges at one revision and passes them to the sink. Its error is errHistory if that revision is compacted
// meanwhile. The first reset of a PartialSink leaves out the rest of large resources, which it returns.
func (f *feed) reset(ctx context.Context, sink resource.FeedSink) (later []largeRange, err error) {
	partial, divides := sink.(resource.PartialSink)
	divides = divides && f.delivered.Load() == 0
	var state []resource.Change
	var rev int64
	var pages pager
	for _, r := range f.ranges {
		for more := true; more; {
			resp, err := f.page(ctx, &f.scope, &pages, 0, r, clientv3.WithRev(rev))
			if isCompacted(err) {
				return nil, errHistory
			} else if err != nil {
				return nil, err
			}
			if rev == 0 {
				rev = resp.Header.Revision
			}
			state = append(state, f.changes(resp.Kvs)...)
			if more = resp.More; !more {
				break
			}
			r.start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
			if rest, ok := f.large(state, r.start); ok && divides {
				later = append(later, rest)
				r.start = rest.end
			}
		}
	}
	if len(later) > 0 {
		partial.ResetPart(rev, state, prefixes(later))
	} else {
		sink.Reset(rev, state)
	}
	f.delivered.Store(rev)
	select {
	case <-f.regressed: // this reset has handled it
	default:
	}
	return later, nil
}

// changes makes changes of keys.
func (f *feed) changes(kvs []*mvccpb.KeyValue) []resource.Change {
	changes := make([]resource.Change, len(kvs))
	for i, kv := range kvs {
		changes[i] = resource.Change{Path: f.path(kv.Key), Revision: kv.ModRevision}
		f.fill(&changes[i], kv)
	}
	return changes
}

// path returns the storage path of a key.
func (f *feed) path(key []byte) string { return string(bytes.TrimPrefix(key, []byte(f.prefix))) }

// has reports whether a key is in one of the ranges.
func (f *feed) has(key string) bool {
	i, found := slices.BinarySearchFunc(f.ranges, key, func(r keyRange, key string) int { return strings.Compare(r.start, key) })
	return found || i > 0 && key < f.ranges[i-1].end
}

// appendChanges appends etcd's events of keys in the ranges.
func (f *feed) appendChanges(to []resource.Change, events []*mvccpb.Event) []resource.Change {
	for _, e := range events {
		key := string(e.Kv.Key)
		if !f.has(key) {
			continue
		}
		c := resource.Change{Path: f.path(e.Kv.Key), Revision: e.Kv.ModRevision, Create: e.Kv.CreateRevision == e.Kv.ModRevision}
		if e.Type == mvccpb.Event_PUT {
			f.fill(&c, e.Kv)
		}
		to = append(to, c)
	}
	return to
}

// fill sets the object of a change.
func (f *feed) fill(c *resource.Change, kv *mvccpb.KeyValue) {
	plain, _, err := f.plain(kv)
	if err != nil {
		if c.Unreadable = err; f.sealed.add(kv) {
			f.log.Error("a stored object cannot be decrypted; others with the same key are not reported", "error", err)
		}
		return
	}
	if w := f.recent.take(kv.Key, plain); w != nil {
		c.Object = w.at(kv.ModRevision)
		return
	}
	if c.Object, c.Unreadable = parse(c.Path, kv, plain); c.Unreadable != nil {
		f.log.Error("a stored object cannot be read", "error", c.Unreadable)
	}
}

// Current returns etcd's revision by a linearizable read that begins after the call and is
// shared with other callers.
func (f *feed) Current(ctx context.Context) (int64, error) {
	delivered := f.delivered.Load()
	rev, err := f.revision.current(ctx)
	if err == nil && rev < delivered {
		// Revisions only grow: this is another etcd, or one restored from a backup. A
		// watch would wait for a revision that may never be reached, or be reached with
		// other events, and the delivered state is not the stored one.
		signal(f.regressed)
		return 0, resource.Unavailable("etcd was restored to an earlier state, which is being read", retryAfter)
	}
	return rev, err
}

// RequestProgress makes the running feed call Progress once etcd has answered. It does not
// wait, and does nothing while the feed is interrupted.
func (f *feed) RequestProgress(ctx context.Context) error {
	signal(f.progress)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Limits of recentWrites: the number of writes, and the size of each. Where no feed
// consumes them, they take 4 MiB.
const (
	recentObjects = 256
	recentBytes   = 16 << 10
)

// recentWrites are the latest writes of this process that its feed has not received. The
// writer and the feed then share one Object: it is parsed once, its bytes are in memory
// once, and what is known of it (resource.Object.Canonical) remains known. Safe for
// concurrent use.
type recentWrites struct {
	mu    sync.Mutex
	byKey map[string]*recentWrite
	// ring holds the keys in the order of their writes; next is the oldest.
	ring [recentObjects]string
	next int
}

// recentWrite is one write, whether or not it was executed.
type recentWrite struct {
	stored []byte // before encryption

	mu  sync.Mutex
	obj *resource.Object // at any revision
}

// at returns the object as of the revision of the write.
func (w *recentWrite) at(rev int64) *resource.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.obj = w.obj.WithRevision(rev)
	return w.obj
}

// begin adds a write that is about to be sent.
func (r *recentWrites) begin(key string, obj *resource.Object, stored []byte) *recentWrite {
	w := &recentWrite{stored: stored, obj: obj}
	if len(stored) > recentBytes {
		return w
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = make(map[string]*recentWrite, recentObjects)
	}
	delete(r.byKey, r.ring[r.next])
	r.ring[r.next] = key
	r.next = (r.next + 1) % recentObjects
	r.byKey[key] = w
	return w
}

// take removes and returns the write of these bytes under a key; nil if there is none.
func (r *recentWrites) take(key, stored []byte) *recentWrite {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.byKey[string(key)]
	if w == nil || !bytes.Equal(w.stored, stored) {
		return nil
	}
	delete(r.byKey, string(key))
	return w
}
