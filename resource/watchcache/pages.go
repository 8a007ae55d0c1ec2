package watchcache

import (
	"slices"
	"sync"
	"time"
)

// pageSnapshots are the snapshots of lists that are read in pages: the resource of one event
// log at one revision each. They are bounded by number, age and replaced bytes; without
// its snapshot a list continues from the store beneath. Safe for concurrent use.
type pageSnapshots struct {
	mu   sync.Mutex
	list []pageSnapshot // least recently used first
}

type pageSnapshot struct {
	events *eventLog
	rev    int64
	used   time.Duration // since the cache was made
	snap   *snapshot
}

// keep adds the snapshot of an event log's resource at rev.
func (k *pageSnapshots) keep(l *eventLog, rev int64, s *snapshot, now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(e pageSnapshot) bool { return e.events == l && e.rev == rev })
	if len(k.list) >= maxPageSnapshots {
		k.list = slices.Delete(k.list, 0, 1)
	}
	k.list = append(k.list, pageSnapshot{l, rev, now, s})
}

// find returns a snapshot of keep; nil if there is none. A list that was in progress when
// the storage was restored may have added one of another epoch.
func (k *pageSnapshots) find(l *eventLog, rev int64, epoch int, now time.Duration) *snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.list, func(e pageSnapshot) bool { return e.events == l && e.rev == rev && e.snap.epoch == epoch })
	if i < 0 {
		return nil
	}
	e := k.list[i]
	e.used = now
	k.list = append(slices.Delete(k.list, i, i+1), e)
	return e.snap
}

// tidy removes snapshots that were not used for pageAge or are older than oldest, a
// snapshot.replaced.
func (k *pageSnapshots) tidy(now time.Duration, oldest int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(e pageSnapshot) bool {
		return now-e.used > pageAge || e.snap.replaced < oldest
	})
}

// clear removes all snapshots.
func (k *pageSnapshots) clear() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = nil
}
