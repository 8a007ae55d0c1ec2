package watchcache

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// store serves one resource out of the cache.
type store struct {
	cache   *Cache
	info    *resource.Info
	beneath resource.Store
	hinted  resource.Hinted // beneath, if it takes hints
	events  *eventLog
	reads   readSeries
}

// Store returns the store of one resource. Any number may be made, at any
// time, also for a resource whose objects arrived before: it takes no watch, no
// list and no goroutine. The resource's history begins with its first Store.
//
// While the cache is not ready, Get and plain lists with a limit are answered
// by the store beneath; other lists, and watches, wait a moment and are then
// refused with 429.
func (c *Cache) Store(info *resource.Info) resource.Store {
	s := &store{cache: c, info: info, beneath: c.cfg.Store(info), events: c.eventLog(info.RangePath("")),
		reads: readSeries{all: &c.reads, info: info}}
	s.hinted, _ = s.beneath.(resource.Hinted)
	return s
}

// Info returns what the store keeps.
func (s *store) Info() *resource.Info { return s.info }

// Create goes to the store beneath.
func (s *store) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	return s.beneath.Create(ctx, key, obj, ttl)
}

// Update goes to the store beneath, which may try the cached object first.
func (s *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	if s.hinted == nil {
		return s.beneath.Update(ctx, key, mutate)
	}
	return s.hinted.UpdateFrom(ctx, key, s.cached(key), mutate)
}

// Delete goes to the store beneath, which may try the cached object first.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(*resource.Object) error) (*resource.Object, error) {
	if s.hinted == nil {
		return s.beneath.Delete(ctx, key, check)
	}
	return s.hinted.DeleteFrom(ctx, key, s.cached(key), check)
}

// cached returns the object as the cache has it; nil if it has none.
func (s *store) cached(key resource.Key) *resource.Object {
	now := s.cache.now.Load()
	if now == nil {
		return nil
	}
	return now.get(s.info.ObjectPath(key))
}

// Get returns one object.
func (s *store) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	if !s.cache.Ready() {
		return s.beneath.Get(ctx, key, at)
	}
	if at.Freshness == resource.Exact {
		at.Freshness = resource.NotOlderThan // Exact is for List only
	}
	now, err := s.fresh(ctx, at)
	if err != nil {
		return nil, err
	}
	if now == nil {
		o, err := s.beneath.Get(ctx, key, at)
		s.fellBack(at, err)
		return o, err
	}
	if o := now.get(s.info.ObjectPath(key)); o != nil {
		return o, nil
	}
	if now.hides(s.info.ObjectPath(key)) {
		return s.beneath.Get(ctx, key, at)
	}
	return nil, apierrors.NewNotFound(s.info.GroupResource(), key.Name)
}

// fresh returns a snapshot that is as new as asked for; nil when only the store
// beneath can tell. The cache must be ready.
func (s *store) fresh(ctx context.Context, at resource.At) (*snapshot, error) {
	c := s.cache
	deadline := time.Now().Add(c.cfg.FreshTimeout)
	switch at.Freshness {
	case resource.Any:
		return c.now.Load(), nil
	case resource.Exact:
		return c.at(s.events, at.Revision), nil
	case resource.NotOlderThan:
		now, err := s.wait(ctx, at.Revision, deadline)
		if err == nil && now == nil || errors.Is(err, context.DeadlineExceeded) {
			// Of a watch that is to be short the client has to learn this, too.
			err = resource.TooLargeRevision(at.Revision, c.Revision())
		}
		return now, statusError(err)
	}
	rev, ok := c.latest(ctx, deadline)
	if !ok {
		return nil, statusError(ctx.Err())
	}
	now, err := s.wait(ctx, rev, deadline)
	if now != nil {
		s.reads.fromCache()
	}
	return now, statusError(err)
}

// fellBack counts a read that the store beneath answered because the cache was
// not as new as it asked.
func (s *store) fellBack(at resource.At, err error) {
	if at.Freshness == resource.Latest {
		s.reads.fromBeneath(err)
	}
}

// wait is Cache.wait, timed if it waits.
func (s *store) wait(ctx context.Context, rev int64, deadline time.Time) (*snapshot, error) {
	if now := s.cache.now.Load(); now.rev >= rev {
		return now, nil
	}
	start := time.Now()
	now, err := s.cache.wait(ctx, rev, deadline)
	s.reads.wait(time.Since(start))
	return now, err
}

// latest returns the storage's revision; false when it cannot be had before the
// deadline.
func (c *Cache) latest(ctx context.Context, deadline time.Time) (int64, bool) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	rev, err := c.cfg.Feed.Current(ctx)
	if err != nil {
		c.cfg.Logger.Debug("read of the current revision failed", "error", err)
	}
	return rev, err == nil
}

// ready waits a moment for the cache to have a state.
func (s *store) ready(ctx context.Context) error {
	if s.cache.Ready() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, s.cache.cfg.FreshTimeout)
	defer cancel()
	if s.cache.WaitReady(wait) == nil {
		return nil
	}
	// The longer it has taken, the longer it is likely to take.
	retry := min(max(int(s.cache.age()/time.Second), 1), 30)
	return apierrors.NewTooManyRequests("storage is (re)initializing", retry)
}

// statusError makes an ended context the StatusError that a Store returns.
func statusError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("the request ended before the cache was as new as it asked: "+err.Error(), 0)
	}
	return err
}
