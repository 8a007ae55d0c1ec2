package watchcache

import (
	"slices"
	"strings"

	"portico/resource"
)

// sink is the FeedSink of a Cache.
type sink struct{ *Cache }

// Reset replaces the state. Watchers continue with the difference of the two states. A new
// watch cannot start before the new state: objects may have been created and deleted
// unseen.
func (c sink) Reset(rev int64, state []resource.Change) { c.ResetPart(rev, state, nil) }

// ResetPart is Reset with a state that lacks objects below the prefixes of loading.
func (c sink) ResetPart(rev int64, state []resource.Change, loading []string) {
	old := c.now.Load()
	tree, size, same := newTree(), int64(0), int64(0)
	var unreadable []string
	for _, ch := range state {
		if ch.Unreadable != nil {
			unreadable = append(unreadable, ch.Path)
			continue
		}
		if was := old.same(ch); was != nil {
			ch.Object = was
			same += sizeOf(was)
		}
		tree.Load(item{ch.Path, ch.Object})
		size += sizeOf(ch.Object)
	}
	c.mu.Lock()
	c.resets++
	c.tree, c.unreadable, c.loading = tree, unreadable, loading
	if old == nil {
		c.useEarly()
		c.live = size
		for _, l := range c.eventLogs {
			l.cross(rev, 0, c.cfg.History)
		}
		c.publish(rev)
	} else {
		c.replaced, c.live = c.replaced+c.live-same, size
		c.bridge(old, &snapshot{tree: tree, rev: rev, unreadable: unreadable})
		c.loseObservers()
		c.publish(rev)
		c.release()
	}
	c.loaded()
	c.mu.Unlock()
	c.waiters.release(rev)
}

// Load adds objects below a prefix of ResetPart.
func (c sink) Load(prefix string, objects []resource.Change, last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range objects {
		if ch.Unreadable != nil {
			c.unreadable = withPath(c.unreadable, ch.Path, true)
			continue
		}
		c.tree.Load(item{ch.Path, ch.Object})
		c.live += sizeOf(ch.Object)
	}
	if last {
		c.loading = slices.DeleteFunc(slices.Clone(c.loading), func(p string) bool { return p == prefix })
		for path, l := range c.eventLogs {
			if strings.HasPrefix(path, prefix) || strings.HasPrefix(prefix, path) {
				l.breakOff(c.Revision(), errBreak) // nothing watches it yet; its changes are not in order
				c.histories.Add(l.grown())
			}
		}
		c.publish(c.Revision())
		c.loaded()
	}
}

// loaded wakes reads that wait for objects to be loaded. mu is held.
func (c sink) loaded() {
	close(c.grown)
	c.grown = make(chan struct{})
}

// bridge adds the difference of two states to the event logs. mu is held.
func (c sink) bridge(old, next *snapshot) {
	changes, ok := difference(old, next)
	if !ok {
		c.cfg.Logger.Warn("storage was restored to an earlier state, ending all watches", "revision", next.rev, "previous", old.rev)
		c.epoch++
		c.pages.clear()
		for _, l := range c.eventLogs {
			l.breakOff(next.rev, errBreak)
			c.histories.Add(l.grown())
		}
		return
	}
	c.cfg.Logger.Info("feed was reset, watches continue with the difference", "revision", next.rev, "previous", old.rev, "changes", len(changes))
	for _, ch := range changes {
		if l := c.logOf(ch.path); l != nil {
			l.pending = append(l.pending, ch.change)
		}
	}
	now := c.age()
	for _, l := range c.eventLogs {
		l.cross(next.rev, now, c.cfg.History)
		c.histories.Add(l.grown())
	}
	c.boundHistories()
	for _, path := range next.unreadable {
		if l := c.logOf(path); l != nil && !old.hides(path) {
			l.breakOff(next.rev, errUnreadable)
			c.histories.Add(l.grown())
		}
	}
}

// publish publishes a snapshot of the tree as of rev. mu is held.
func (c sink) publish(rev int64) {
	c.now.Store(&snapshot{tree: c.tree.Copy(), rev: rev, unreadable: c.unreadable, loading: c.loading, epoch: c.epoch, replaced: c.replaced})
}

// Apply applies changes.
func (c sink) Apply(changes []resource.Change) {
	if len(changes) == 0 {
		return
	}
	c.mu.Lock()
	var touched, broken []*eventLog
	for _, ch := range changes {
		if ch.Unreadable != nil {
			if l := c.logOf(ch.Path); l != nil {
				broken = append(broken, l)
			}
			c.apply(ch)
			continue
		}
		prev, known := c.apply(ch)
		if !known {
			continue
		}
		c.observe(prev, ch.Object)
		if l := c.logOf(ch.Path); l != nil {
			if len(l.pending) == 0 {
				touched = append(touched, l)
			}
			l.pending = append(l.pending, &change{rev: ch.Revision, prev: prev, cur: ch.Object})
		}
	}
	now := c.age()
	for _, l := range touched {
		l.flush(now, c.cfg.History)
		c.histories.Add(l.grown())
	}
	c.boundHistories()
	rev := changes[len(changes)-1].Revision
	for _, l := range broken {
		l.breakOff(rev, errUnreadable)
		c.histories.Add(l.grown())
	}
	c.publish(max(rev, c.Revision()))
	c.release()
	c.mu.Unlock()
	c.waiters.release(rev)
}

// apply applies a change to the tree and returns the state before. ok is false if the tree
// has the change already. mu is held.
func (c sink) apply(ch resource.Change) (prev *resource.Object, ok bool) {
	was, had := c.tree.Get(item{path: ch.Path})
	if had && was.obj.Revision >= ch.Revision {
		return nil, false
	}
	c.unreadable = withPath(c.unreadable, ch.Path, ch.Unreadable != nil)
	c.replaced += sizeOf(was.obj)
	c.live += sizeOf(ch.Object) - sizeOf(was.obj)
	if ch.Object == nil {
		c.tree.Delete(item{path: ch.Path})
		return was.obj, had
	}
	c.tree.Set(item{ch.Path, ch.Object})
	return was.obj, true
}

// Progress sets the revision of the state.
func (c sink) Progress(rev int64) {
	c.mu.Lock()
	if s := c.now.Load(); s != nil && s.rev < rev {
		next := *s
		next.rev = rev
		c.now.Store(&next)
	}
	c.mu.Unlock()
	c.waiters.release(rev)
	c.progress.Set()
}
