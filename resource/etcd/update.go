package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// state is the state of a key that an update starts from.
type state struct {
	object *resource.Object // nil if the key does not exist
	// stale requests a write even if nothing changes.
	stale bool
	// hint is set if the state is the caller's, not etcd's.
	hint bool
}

func (st state) revision() int64 {
	if st.object == nil {
		return 0
	}
	return st.object.Revision
}

// Update replaces the object by the result of mutate.
func (s *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	return s.UpdateFrom(ctx, key, nil, mutate)
}

// UpdateFrom is Update with a hint. Each round either ends or learns the current state; a
// failed transaction returns it.
func (s *store) UpdateFrom(ctx context.Context, key resource.Key, hint *resource.Object, mutate resource.Mutate) (*resource.Object, error) {
	path := s.key(key)
	st := state{object: hint, hint: hint != nil}
	var err error
	if hint == nil {
		if st, err = s.current(ctx, path); err != nil {
			return nil, err
		}
	}
	for {
		m, err := mutate(st.object)
		if err == nil {
			err = s.checkMutation(key, st, m)
		}
		if st.hint && (err != nil || s.changesNothing(st, m)) {
			// The result holds only if the hint is the current state.
			fresh, readErr := s.current(ctx, path)
			if readErr != nil {
				return nil, readErr
			}
			if fresh.revision() != st.revision() {
				st = fresh
				continue
			}
			st.hint, st.stale = false, fresh.stale
		}
		if err != nil {
			return nil, err
		}
		if s.changesNothing(st, m) {
			return st.object, nil
		}
		obj, next, err := s.apply(ctx, path, st, m)
		if err != nil || obj != nil {
			return obj, err
		}
		st = next
	}
}

// checkMutation returns the error of a mutation that has no next state.
func (s *store) checkMutation(key resource.Key, st state, m resource.Mutation) error {
	switch {
	case m.Delete && st.object == nil:
		return s.notFound(key)
	case !m.Delete && m.Object == nil:
		return internal(fmt.Sprintf("update of %s %s: the mutation has neither an object nor a deletion", s.info.GroupResource(), key))
	}
	return nil
}

// changesNothing reports whether writing m would leave etcd unchanged.
func (s *store) changesNothing(st state, m resource.Mutation) bool {
	return !m.Delete && m.Object != nil && st.object != nil && !st.stale &&
		bytes.Equal(st.object.Stored(), m.Object.Stored())
}

// apply commits m if st is the current state. If it is not, obj is nil and next is the
// current state.
func (s *store) apply(ctx context.Context, path string, st state, m resource.Mutation) (obj *resource.Object, next state, err error) {
	var cur *mvccpb.KeyValue
	if m.Delete {
		obj, cur, err = s.remove(ctx, path, st, m.Object)
	} else {
		obj, cur, err = s.write(ctx, opUpdate, path, st.revision(), m.Object, m.TTL)
	}
	if err != nil || obj != nil {
		return obj, state{}, err
	}
	next, err = s.stateOf(cur)
	return nil, next, err
}

// remove is write for a deletion; last is the state that it returns, nil for st's.
func (s *store) remove(ctx context.Context, path string, st state, last *resource.Object) (gone *resource.Object, cur *mvccpb.KeyValue, err error) {
	at, cur, ok, err := s.commit(ctx, &s.scope, opDelete, []byte(path), st.revision(), deleteOp([]byte(path)))
	if err != nil || !ok {
		return nil, cur, writeStatus(ctx, err)
	}
	if last == nil {
		last = st.object
	}
	return last.WithRevision(at), nil, nil
}

// current reads the state of a key.
func (s *store) current(ctx context.Context, path string) (state, error) {
	resp, err := s.read(ctx, &s.scope, opGet, path)
	if err != nil {
		return state{}, asStatus(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return state{}, nil
	}
	return s.stateOf(resp.Kvs[0])
}

func (s *store) stateOf(kv *mvccpb.KeyValue) (state, error) {
	if kv == nil {
		return state{}, nil
	}
	obj, stale, err := s.decode(kv)
	return state{object: obj, stale: stale}, err
}

// Delete removes the object if check accepts its current state.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(cur *resource.Object) error) (*resource.Object, error) {
	return s.DeleteFrom(ctx, key, nil, check)
}

// DeleteFrom is Delete with a hint.
func (s *store) DeleteFrom(ctx context.Context, key resource.Key, hint *resource.Object, check func(cur *resource.Object) error) (*resource.Object, error) {
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

var _ resource.Discarder = (*store)(nil)

// Discard removes a value that cannot be read, if it has not changed since it was read.
func (s *store) Discard(ctx context.Context, key resource.Key, dryRun bool) error {
	path := s.key(key)
	resp, err := s.read(ctx, &s.scope, opGet, path)
	if err != nil {
		return asStatus(ctx, err)
	}
	for kvs := resp.Kvs; ; {
		if len(kvs) == 0 {
			return s.notFound(key)
		}
		if _, _, err := s.decode(kvs[0]); err == nil {
			return apierrors.NewConflict(s.info.GroupResource(), key.Name,
				errors.New("the object can be read, so it cannot be deleted as unreadable"))
		}
		if dryRun {
			return nil
		}
		_, cur, ok, err := s.commit(ctx, &s.scope, opDelete, kvs[0].Key, kvs[0].ModRevision, deleteOp(kvs[0].Key))
		if err != nil || ok {
			return writeStatus(ctx, err)
		}
		kvs = kvs[:0]
		if cur != nil {
			kvs = append(kvs, cur)
		}
	}
}
