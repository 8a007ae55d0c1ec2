package watchcache

import (
	"context"
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
	lane    *lane
}

// Store returns the store of one resource. It costs nothing: any number may be
// made, at any time.
func (c *Cache) Store(info *resource.Info) resource.Store {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &store{cache: c, info: info, beneath: c.cfg.Store(info), lane: c.lane(info.RangePath(""))}
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
	if cached := s.cached(key); cached != nil && s.hinted != nil {
		return s.hinted.UpdateFrom(ctx, key, cached, mutate)
	}
	return s.beneath.Update(ctx, key, mutate)
}

// Delete goes to the store beneath, which may try the cached object first.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(*resource.Object) error) (*resource.Object, error) {
	if cached := s.cached(key); cached != nil && s.hinted != nil {
		return s.hinted.DeleteFrom(ctx, key, cached, check)
	}
	return s.beneath.Delete(ctx, key, check)
}

// cached returns the object as the cache has it; nil if it has none.
func (s *store) cached(key resource.Key) *resource.Object {
	now := s.cache.now.Load()
	if now == nil {
		return nil
	}
	it, _ := now.tree.Get(item{path: s.info.ObjectPath(key)})
	return it.obj
}

// Get returns one object. Before the cache is ready, the store beneath answers.
func (s *store) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	now, err := s.fresh(ctx, at)
	if err != nil {
		return nil, err
	}
	if now == nil {
		return s.beneath.Get(ctx, key, at)
	}
	it, ok := now.tree.Get(item{path: s.info.ObjectPath(key)})
	if !ok {
		return nil, apierrors.NewNotFound(s.info.GroupResource(), key.Name)
	}
	return it.obj, nil
}

// fresh returns a snapshot that is as new as asked for; nil when only the store
// beneath can tell.
func (s *store) fresh(ctx context.Context, at resource.At) (*snapshot, error) {
	now := s.cache.now.Load()
	if now == nil {
		return nil, nil
	}
	switch at.Freshness {
	case resource.Any:
		return now, nil
	case resource.Exact:
		return s.cache.at(at.Revision), nil
	case resource.NotOlderThan:
		now, err := s.cache.wait(ctx, at.Revision)
		if err == errTooLate {
			return nil, resource.TooLargeRevision(at.Revision, s.cache.Revision())
		}
		return now, err
	}
	rev, err := s.cache.cfg.Feed.Current(ctx)
	if err != nil {
		return nil, err
	}
	now, err = s.cache.wait(ctx, rev)
	if err == errTooLate {
		return nil, nil
	}
	return now, err
}
