package watchcache

import (
	"slices"
	"sync"
	"time"
)

// kept holds the few snapshots that lists are being read from in pages. Each
// shows one event log's resource as it was at one revision. They are bounded in
// number, age and by what was replaced since, for they hold on to that; when one
// is gone, the store beneath can still answer.
type kept struct {
	mu   sync.Mutex
	list []keptSnapshot // least recently used first
}

type keptSnapshot struct {
	events *eventLog
	rev    int64
	used   time.Duration // since the cache was made
	snap   *snapshot
}

// keep remembers what the event log's resource looks like at rev.
func (k *kept) keep(l *eventLog, rev int64, s *snapshot, now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(e keptSnapshot) bool { return e.events == l && e.rev == rev })
	if len(k.list) >= keptSnapshots {
		k.list = slices.Delete(k.list, 0, 1)
	}
	k.list = append(k.list, keptSnapshot{l, rev, now, s})
}

// find returns what was kept, nil if nothing. A list that was under way when the
// storage was set back may have kept what is no state of this epoch.
func (k *kept) find(l *eventLog, rev int64, epoch int, now time.Duration) *snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.list, func(e keptSnapshot) bool { return e.events == l && e.rev == rev && e.snap.epoch == epoch })
	if i < 0 {
		return nil
	}
	e := k.list[i]
	e.used = now
	k.list = append(slices.Delete(k.list, i, i+1), e)
	return e.snap
}

// tidy drops what was not used for a while, or is older than oldest, which is a
// snapshot.replaced.
func (k *kept) tidy(now time.Duration, oldest int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(e keptSnapshot) bool {
		return now-e.used > keptAge || e.snap.replaced < oldest
	})
}

// clear drops everything.
func (k *kept) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = nil
}
