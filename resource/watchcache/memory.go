package watchcache

import (
	"time"

	"portico/resource"
)

// What a cache holds besides the present state is bounded by the bytes of the
// states that were replaced: those that changes remember (History.MaxBytes), and
// those that snapshots hold on to.
const (
	// objectBytes is what an object takes besides its data, roughly.
	objectBytes = 512
	// changeBytes is what a change takes besides its objects.
	changeBytes = 128
	// agedBytes is what one resource's changes that are older than History.Age
	// may come to.
	agedBytes = 1 << 20
	// heldBytes is how much may have been replaced since a snapshot that is kept
	// for a list in pages, or for a watch that begins with it; half of what is
	// live, if that is more.
	heldBytes = 64 << 20
)

// sizeOf is what an object takes; 0 for none.
func sizeOf(o *resource.Object) int64 {
	if o == nil {
		return 0
	}
	return objectBytes + int64(len(o.Data))
}

// replace notes that one state took the place of another, either of which may be
// nil. mu is held.
func (c *Cache) replace(old, next *resource.Object) {
	c.replaced += sizeOf(old)
	c.live += sizeOf(next) - sizeOf(old)
}

// oldest is the least snapshot.replaced that may be held on to. mu is held.
func (c *Cache) oldest() int64 { return c.replaced - max(heldBytes, c.live/2) }

// letGo has old snapshots dropped, where much was replaced since that was done
// last. mu is held.
func (c *Cache) letGo() {
	if c.replaced-c.tidied < heldBytes/8 {
		return
	}
	c.tidied = c.replaced
	now, oldest := c.age(), c.oldest()
	c.kept.tidy(now, oldest)
	c.initials.tidy(now, oldest)
}

// remember takes the pending changes of event logs in, and has the longest histories
// forget what is too much for all of them together. mu is held.
func (c *Cache) remember(touched []*eventLog, now time.Duration) {
	for _, l := range touched {
		l.flush(now, c.cfg.History)
		c.histories.Add(l.spent())
	}
	c.economize()
}

// economize brings the histories back to their bound. Some more than is too much
// is forgotten, so that it is not done for every change. mu is held.
func (c *Cache) economize() {
	limit := c.cfg.History.MaxBytes
	for c.histories.Load() > limit {
		var most *eventLog
		var cost int64
		for _, l := range c.eventLogs {
			if n := l.cost(); n > cost {
				most, cost = l, n
			}
		}
		if most == nil {
			return
		}
		most.cut(cost - (c.histories.Load() - limit) - limit/16)
		c.histories.Add(most.spent())
	}
}
