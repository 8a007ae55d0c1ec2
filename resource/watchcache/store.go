package watchcache

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
)

// store is the Store of one resource.
type store struct {
	cache   *Cache
	info    *resource.Info
	beneath resource.Store
	hinted  resource.Hinted // beneath, if it takes hints
	events  *eventLog
}

// Store returns the store of one resource. It may be called at any time, also after objects
// of the resource were received, and takes no watch, no list and no goroutine. The event log
// of the resource begins with its first Store.
//
// While the cache does not have all objects of the resource, the store beneath answers Get and lists with a limit and
// without a selector. Other lists, and watches, wait for FreshTimeout and then fail with
// 429.
func (c *Cache) Store(info *resource.Info) resource.Store {
	s := &store{cache: c, info: info, beneath: c.cfg.Store(info), events: c.eventLog(info.RangePath(""))}
	s.hinted, _ = s.beneath.(resource.Hinted)
	return s
}

// Info returns the resource of the store.
func (s *store) Info() *resource.Info { return s.info }

// Create goes to the store beneath.
func (s *store) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	return s.beneath.Create(ctx, key, obj, ttl)
}

// Update goes to the store beneath, with the cached object as a hint.
func (s *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	if s.hinted == nil {
		return s.beneath.Update(ctx, key, mutate)
	}
	return s.hinted.UpdateFrom(ctx, key, s.cached(key), mutate)
}

// Delete goes to the store beneath, with the cached object as a hint.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(*resource.Object) error) (*resource.Object, error) {
	if s.hinted == nil {
		return s.beneath.Delete(ctx, key, check)
	}
	return s.hinted.DeleteFrom(ctx, key, s.cached(key), check)
}

// cached returns the object of the cache; nil if there is none.
func (s *store) cached(key resource.Key) *resource.Object {
	now := s.cache.now.Load()
	if now == nil {
		return nil
	}
	return now.get(s.info.ObjectPath(key))
}

// Get returns one object.
func (s *store) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	if !s.has() {
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

// fresh returns a snapshot that is as new as at; nil if the store beneath must be read. The
// cache must be ready.
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
			// Also for a watch with an early deadline.
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
		s.countRead(true, false)
	}
	return now, statusError(err)
}

// fellBack counts a read that the store beneath answered because the cache was too old.
func (s *store) fellBack(at resource.At, err error) {
	if at.Freshness == resource.Latest {
		s.countRead(err == nil, true)
	}
}

// countRead counts a read of the latest state.
func (s *store) countRead(success, fallback bool) {
	s.cache.metrics.consistent.WithLabelValues(s.info.Group, s.info.Resource, strconv.FormatBool(success), strconv.FormatBool(fallback)).Inc()
}

// wait is Cache.wait and observes the time that it takes.
func (s *store) wait(ctx context.Context, rev int64, deadline time.Time) (*snapshot, error) {
	if now := s.cache.now.Load(); now.rev >= rev {
		return now, nil
	}
	start := time.Now()
	now, err := s.cache.wait(ctx, rev, deadline)
	s.cache.metrics.waits.WithLabelValues(s.info.Group, s.info.Resource).Observe(time.Since(start).Seconds())
	return now, err
}

// latest returns the revision of the storage; false if it is not known by the deadline.
func (c *Cache) latest(ctx context.Context, deadline time.Time) (int64, bool) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	rev, err := c.cfg.Feed.Current(ctx)
	if err != nil {
		c.cfg.Logger.Debug("read of the current revision failed", "error", err)
	}
	return rev, err == nil
}

// has reports whether the cache has all objects of the resource.
func (s *store) has() bool { return s.cache.now.Load().has(s.info.RangePath("")) }

// ready waits until the cache has all objects of the resource, for FreshTimeout at most.
func (s *store) ready(ctx context.Context) error {
	if s.has() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, s.cache.cfg.FreshTimeout)
	defer cancel()
	if s.cache.waitFor(wait, s.info.RangePath("")) == nil {
		return nil
	}
	// The longer it has taken, the longer it is likely to take.
	retry := min(max(int(s.cache.age()/time.Second), 1), 30)
	return apierrors.NewTooManyRequests("storage is (re)initializing", retry)
}

// statusError makes a StatusError of the error of an ended context.
func statusError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("the request ended before the cache had reached its revision: "+err.Error(), 0)
	}
	return err
}

// refuseUnreadable returns the error of a watch if its initial events would lack an object
// that cannot be read.
func (s *store) refuseUnreadable(ctx context.Context, opts resource.WatchOptions) error {
	_, err := s.beneath.List(ctx, resource.ListOptions{Namespace: opts.Namespace, Selector: opts.Selector})
	if err != nil {
		return err
	}
	return apierrors.NewTooManyRequests("an object could not be read until now", 1)
}

// readHidden returns the error of a list with unreadable objects, if it includes any. The list
// itself would fail only after a part of it was sent. now may be nil.
func (s *store) readHidden(ctx context.Context, now *snapshot, opts resource.ListOptions) error {
	_, single := s.single(opts.Namespace, opts.Selector)
	if now == nil || single || opts.Limit > 0 || opts.Continue != "" || opts.At.Freshness == resource.Exact {
		return nil
	}
	var errs []error
	for _, path := range now.hidden(s.info.RangePath(opts.Namespace)) {
		key := resource.Key{Name: strings.TrimPrefix(path, s.info.RangePath(""))}
		if s.info.Namespaced {
			key.Namespace, key.Name, _ = strings.Cut(key.Name, "/")
		}
		// By now it may be readable, or deleted.
		if _, err := s.beneath.Get(ctx, key, resource.At{}); apierrors.ReasonForError(err) == metav1.StatusReasonStoreReadError {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return resource.UnreadableList(s.info.GroupResource(), errs)
	}
	return nil
}

var _ resource.Discarder = (*store)(nil)

// Discard goes to the store beneath.
func (s *store) Discard(ctx context.Context, key resource.Key, dryRun bool) error {
	d, ok := s.beneath.(resource.Discarder)
	if !ok {
		return apierrors.NewMethodNotSupported(s.info.GroupResource(), "delete without reading")
	}
	return d.Discard(ctx, key, dryRun)
}
