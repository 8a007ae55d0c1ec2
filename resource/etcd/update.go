package etcd

import (
	"bytes"
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"portico/resource"
)

// state is what an update starts from.
type state struct {
	// object is nil when the key does not exist.
	object *resource.Object
	// stale asks for a rewrite even if nothing changes.
	stale bool
	// hint is true while the state came from the caller, not from etcd.
	hint bool
}

func (st state) revision() int64 {
	if st.object == nil {
		return 0
	}
	return st.object.Revision
}

// Update replaces the object by what mutate makes of it.
func (s *store) Update(ctx context.Context, key resource.Key, mutate resource.Mutate) (*resource.Object, error) {
	return s.UpdateFrom(ctx, key, nil, mutate)
}

// UpdateFrom is Update with a hint. Each round either ends or learns the
// current state; a round that fails to commit learns it from the transaction.
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
			// Not to be believed before etcd's own state says so too. If that
			// is the hint, this round was it.
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

// checkMutation refuses a mutation that names no next state.
func (s *store) checkMutation(key resource.Key, st state, m resource.Mutation) error {
	switch {
	case m.Delete && st.object == nil:
		return s.notFound(key)
	case !m.Delete && m.Object == nil:
		return internal(fmt.Sprintf("update of %s %s: the mutation has neither an object nor a deletion", s.info.GroupResource(), key))
	}
	return nil
}

// changesNothing reports whether writing m would leave etcd as it is.
func (s *store) changesNothing(st state, m resource.Mutation) bool {
	return !m.Delete && m.Object != nil && st.object != nil && !st.stale &&
		bytes.Equal(st.object.Stored(), m.Object.Stored())
}

// apply commits m if st is still the current state. If not, obj is nil and
// next is the current state.
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

// remove is write for a deletion; last is the last state, nil: it is as it was.
func (s *store) remove(ctx context.Context, path string, st state, last *resource.Object) (gone *resource.Object, cur *mvccpb.KeyValue, err error) {
	at, cur, ok, err := s.commit(ctx, &s.asked, opDelete, []byte(path), st.revision(), deleteOp([]byte(path)))
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
	resp, err := s.read(ctx, &s.asked, opGet, path)
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
