package etcd

import (
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/resource"
)

// largeResource is the number of keys of a resource after which the first reset of a feed leaves the rest to a loader: the
// other resources do not wait for a million objects of one.
const largeResource = 20000

// largeRange is a part of a feed that a loader reads.
type largeRange struct {
	prefix string // storage path prefix
	keyRange
}

// large returns the rest of the resource that the last path of a state is of, if that is large. It begins at start.
func (f *feed) large(state []resource.Change, start string) (rest largeRange, ok bool) {
	prefix := resourcePrefix(state[len(state)-1].Path)
	first := sort.Search(len(state), func(i int) bool { return state[i].Path >= prefix })
	return largeRange{prefix, keyRange{start, prefixRange(f.prefix + prefix).end}}, len(state)-first >= f.largeResource
}

// prefixes returns the storage path prefixes of ranges.
func prefixes(of []largeRange) []string {
	var all []string
	for _, r := range of {
		all = append(all, r.prefix)
	}
	return all
}

// resourcePrefix returns the first two elements of a storage path, or the first one if it has two: a resource, or a
// namespace of one.
func resourcePrefix(path string) string {
	first := strings.IndexByte(path, '/') + 1
	if second := strings.IndexByte(path[first:], '/') + 1; second > 0 {
		return path[:first+second]
	}
	return path[:first]
}

// loader is the sink of a feed that reads large resources beside its watch. Changes of them wait until they are read. It is
// safe for concurrent use.
type loader struct {
	feed *feed
	rev  int64 // at which the resources are read

	mu sync.Mutex
	resource.PartialSink
	loading []largeRange
	waiting []resource.Change
}

// load reads the resources one after the other, until ctx ends.
func (l *loader) load(ctx context.Context) {
	for len(l.loading) > 0 { // only complete changes it
		r, began, count := l.loading[0], time.Now(), 0
		l.feed.log.Info("a large resource is read; others are complete", "path", r.prefix)
		var pages pager
		for more := true; more; {
			resp, err := l.feed.page(ctx, &l.feed.scope, &pages, 0, r.keyRange, clientv3.WithRev(l.rev))
			if isCompacted(err) {
				signal(l.feed.regressed) // the stream ends, and the feed resets
				return
			}
			if err != nil {
				l.feed.log.Warn("a large resource cannot be read; retrying", "path", r.prefix, "error", err)
				if l.feed.pause(ctx) != nil {
					return
				}
				continue
			}
			if more = resp.More; more {
				r.start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
			}
			count += len(resp.Kvs)
			l.add(r.prefix, l.feed.changes(resp.Kvs))
		}
		l.complete()
		l.feed.log.Info("a large resource was read", "path", r.prefix, "objects", count, "took", time.Since(began).Round(time.Millisecond))
	}
}

func (l *loader) add(prefix string, objects []resource.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.PartialSink.Load(prefix, objects, false)
}

// complete applies the changes of the first resource, which was read.
func (l *loader) complete() {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.loading[0]
	var own []resource.Change
	l.waiting = slices.DeleteFunc(l.waiting, func(c resource.Change) bool {
		is := strings.HasPrefix(c.Path, r.prefix)
		if is {
			own = append(own, c)
		}
		return is
	})
	l.PartialSink.Apply(own)
	l.PartialSink.Load(r.prefix, nil, true)
	l.loading = l.loading[1:]
}

// Apply applies changes, but those of resources that are not read yet.
func (l *loader) Apply(changes []resource.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(changes) == 0 {
		return
	}
	last := changes[len(changes)-1].Revision
	now := slices.DeleteFunc(changes, func(c resource.Change) bool {
		waits := slices.ContainsFunc(l.loading, func(r largeRange) bool { return strings.HasPrefix(c.Path, r.prefix) })
		if waits {
			l.waiting = append(l.waiting, c)
		}
		return waits
	})
	l.PartialSink.Apply(now)
	if len(now) == 0 || now[len(now)-1].Revision < last {
		l.PartialSink.Progress(last)
	}
}

// Progress passes progress on.
func (l *loader) Progress(rev int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.PartialSink.Progress(rev)
}
