package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/resource"
)

// feedPause is the pause before a feed tries again after a failure.
const feedPause = 250 * time.Millisecond

// errHistory ends a stream whose events no longer connect to what the sink
// knows: they were compacted, or etcd was put back to an earlier state.
var errHistory = errors.New("history is no longer kept")

// feed is a Feed over some ranges of one etcd. Run may run once at a time.
type feed struct {
	*Client
	ranges []keyRange // disjoint, ascending
	// wanted is signalled by RequestProgress.
	wanted chan struct{}
	// delivered is the revision up to which the sink knows everything.
	delivered atomic.Int64
	// regressed is signalled when etcd's revision is found below delivered.
	regressed chan struct{}
}

// Feed returns a feed over storage path prefixes below Config.Prefix (such as
// "configmaps/"); without any, over everything. One watch of etcd covers all ranges and
// the keys between them. Values that cannot be read are delivered as such, and logged.
func (c *Client) Feed(ranges ...string) resource.Feed {
	f := &feed{Client: c, wanted: make(chan struct{}, 1), regressed: make(chan struct{}, 1)}
	if len(ranges) == 0 {
		ranges = []string{""}
	}
	for _, r := range ranges {
		f.ranges = append(f.ranges, prefixRange(c.prefix+r))
	}
	f.ranges = joinRanges(f.ranges)
	return f
}

// FeedExcept returns a feed over everything below Config.Prefix but the storage
// path prefixes named (such as "configmaps/"), at least one. It is for a server
// of resources that come and go: one fixed set of ranges holds them all.
func (c *Client) FeedExcept(excluded ...string) resource.Feed {
	var out []keyRange
	for _, r := range excluded {
		out = append(out, prefixRange(c.prefix+r))
	}
	f := c.Feed()
	f.(*feed).ranges = gaps(prefixRange(c.prefix), joinRanges(out))
	return f
}

// gaps returns what is left of whole without the ranges, which are disjoint and
// ascending.
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

// joinRanges sorts ranges and joins those that touch.
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
	for {
		err := f.reset(ctx, sink)
		for err == nil {
			err = f.stream(ctx, sink)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if errors.Is(err, errHistory) {
				f.log.Warn("feed lost its place and starts anew", "revision", f.delivered.Load())
				break
			}
			f.log.Info("feed was interrupted and goes on", "revision", f.delivered.Load(), "error", err)
			err = f.rest(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.Is(err, errHistory) {
			f.log.Warn("feed cannot read its range; it is tried again", "error", err)
		}
		if err := f.rest(ctx); err != nil {
			return err
		}
	}
}

// rest pauses before another attempt, for as long as etcd is silent.
func (f *feed) rest(ctx context.Context) error {
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

// reset reads all ranges at one revision and gives them to the sink. It fails
// with errHistory when that revision is compacted meanwhile.
func (f *feed) reset(ctx context.Context, sink resource.FeedSink) error {
	var state []resource.Change
	var rev int64
	var pages pager
	for _, r := range f.ranges {
		for more := true; more; {
			resp, err := f.page(ctx, f.own, &pages, 0, r, clientv3.WithRev(rev))
			if isCompacted(err) {
				return errHistory
			} else if err != nil {
				return err
			}
			if rev == 0 {
				rev = resp.Header.Revision
			}
			for _, kv := range resp.Kvs {
				r.start = string(kv.Key) + "\x00"
				c := resource.Change{Path: f.path(kv.Key), Revision: kv.ModRevision}
				f.fill(&c, kv)
				state = append(state, c)
			}
			more = resp.More
		}
	}
	sink.Reset(rev, state)
	f.delivered.Store(rev)
	select {
	case <-f.regressed: // what was found then is answered by this reset
	default:
	}
	return nil
}

// path is a key's storage path.
func (f *feed) path(key []byte) string { return strings.TrimPrefix(string(key), f.prefix) }

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
		c := resource.Change{Path: strings.TrimPrefix(key, f.prefix), Revision: e.Kv.ModRevision, Create: e.Kv.CreateRevision == e.Kv.ModRevision}
		if e.Type == mvccpb.Event_PUT {
			f.fill(&c, e.Kv)
		}
		to = append(to, c)
	}
	return to
}

// fill puts a value into a change.
func (f *feed) fill(c *resource.Change, kv *mvccpb.KeyValue) {
	var plain []byte
	if plain, _, c.Unreadable = f.plain(kv); c.Unreadable == nil {
		if w := f.recent.take(kv.Key, plain); w != nil {
			c.Object = w.at(kv.ModRevision)
			return
		}
		c.Object, c.Unreadable = parse(kv, plain)
	}
	if c.Unreadable != nil {
		f.log.Error("feed found a stored object that cannot be read", "error", c.Unreadable)
	}
}

// Current returns etcd's revision by a linearizable read that begins after the
// call, shared with others who wait.
func (f *feed) Current(ctx context.Context) (int64, error) {
	delivered := f.delivered.Load()
	rev, err := f.revision.current(ctx)
	if err == nil && rev < delivered {
		// Revisions only grow: this is another etcd, or one restored from a
		// backup. A watch would wait for a revision that may never come, or
		// pass it with other events; and what was delivered is not what is.
		signal(f.regressed)
		return 0, resource.Unavailable("etcd was set back, its state is being read anew", retryAfter)
	}
	return rev, err
}

// RequestProgress has the running feed call Progress once etcd has answered.
// It does not wait, and does nothing while the feed is interrupted.
func (f *feed) RequestProgress(ctx context.Context) error {
	signal(f.wanted)
	return nil
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
