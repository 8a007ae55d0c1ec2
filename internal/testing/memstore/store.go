package memstore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// store is the Store of one resource.
type store struct {
	*Storage
	info *resource.Info
}

// Store returns the store of one resource. It uses hints (resource.Hinted).
func (s *Storage) Store(info *resource.Info) resource.Store { return &store{Storage: s, info: info} }

var _ resource.Hinted = (*store)(nil)

// Info returns the resource of the store.
func (s *store) Info() *resource.Info { return s.info }

// Get returns one object of the current state, whatever the freshness.
func (s *store) Get(ctx context.Context, key resource.Key, at resource.At) (*resource.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.Freshness == resource.NotOlderThan && at.Revision > s.last().rev {
		return nil, resource.TooLargeRevision(at.Revision, s.last().rev)
	}
	if e := s.find(s.info.ObjectPath(key)); e != nil {
		return e.object, nil
	}
	return nil, s.notFound(key)
}

// Create stores a new object.
func (s *store) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.info.ObjectPath(key)
	if s.find(path) != nil {
		return nil, apierrors.NewAlreadyExists(s.info.GroupResource(), key.Name)
	}
	return s.put(path, obj, ttl), nil
}

// Update replaces an object by the result of mutate.
func (s *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	return s.UpdateFrom(ctx, key, nil, mutate)
}

// UpdateFrom is Update with a hint.
func (s *store) UpdateFrom(ctx context.Context, key resource.Key, hint *resource.Object, mutate resource.Mutate) (*resource.Object, error) {
	for cur := range s.attempts(ctx, key, hint) {
		m, err := mutate(cur)
		if err == nil && m.Object == nil && (!m.Delete || cur == nil) {
			err = s.nothing(key, m)
		}
		done, obj := s.tryUpdate(key, cur, m, err)
		if done {
			return obj, err
		}
	}
	return nil, s.interrupted(ctx)
}

// Delete removes an object.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(*resource.Object) error) (*resource.Object, error) {
	return s.DeleteFrom(ctx, key, nil, check)
}

// DeleteFrom is Delete with a hint.
func (s *store) DeleteFrom(ctx context.Context, key resource.Key, hint *resource.Object, check func(*resource.Object) error) (*resource.Object, error) {
	return s.UpdateFrom(ctx, key, hint, func(cur *resource.Object) (resource.Mutation, error) {
		if cur == nil {
			return resource.Mutation{}, s.notFound(key)
		}
		if check != nil {
			if err := check(cur); err != nil {
				return resource.Mutation{}, err
			}
		}
		return resource.Mutation{Delete: true}, nil
	})
}

// attempts yields the hint, if there is one, then the current state repeatedly until ctx
// ends.
func (s *store) attempts(ctx context.Context, key resource.Key, hint *resource.Object) func(yield func(*resource.Object) bool) {
	return func(yield func(*resource.Object) bool) {
		if hint != nil && !yield(hint) {
			return
		}
		for ctx.Err() == nil {
			if !yield(s.current(key)) {
				return
			}
		}
	}
}

func (s *store) current(key resource.Key) *resource.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(s.info.ObjectPath(key)); e != nil {
		return e.object
	}
	return nil
}

// tryUpdate applies a mutation of cur if cur is the current state; otherwise it does
// nothing.
func (s *store) tryUpdate(key resource.Key, cur *resource.Object, m resource.Mutation, err error) (bool, *resource.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := s.info.ObjectPath(key)
	e := s.find(path)
	if (e == nil) != (cur == nil) || e != nil && e.object.Revision != cur.Revision {
		return false, nil
	}
	switch {
	case err != nil:
		return true, nil
	case m.Delete:
		final := cur
		if m.Object != nil {
			final = m.Object
		}
		if cur != nil {
			s.put(path, nil, 0)
		}
		return true, final.WithRevision(s.last().rev)
	case cur != nil && bytes.Equal(cur.Stored(), m.Object.Stored()):
		return true, cur
	}
	return true, s.put(path, m.Object, m.TTL)
}

// nothing returns the error for a mutation without a next state.
func (s *store) nothing(key resource.Key, m resource.Mutation) error {
	if m.Delete {
		return s.notFound(key)
	}
	return apierrors.NewInternalError(fmt.Errorf("update %s %s: the mutation has neither an object nor a deletion", s.info.GroupResource(), key))
}

func (s *store) notFound(key resource.Key) error {
	return apierrors.NewNotFound(s.info.GroupResource(), key.Name)
}

func (s *store) interrupted(ctx context.Context) error {
	return apierrors.NewTimeoutError(fmt.Sprintf("update of %s was interrupted: %v", s.info.GroupResource(), ctx.Err()), 0)
}
