package etcd

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// Delete removes the object if check agrees with its current state.
func (s *store) Delete(ctx context.Context, key resource.Key, check func(cur *resource.Object) error) (*resource.Object, error) {
	return s.DeleteFrom(ctx, key, nil, check)
}

// DeleteFrom is Delete with a hint. A deletion is an update that ends in
// nothing.
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

// Discard removes a value that cannot be read, if it still is the one that was
// found so.
func (s *store) Discard(ctx context.Context, key resource.Key, dryRun bool) error {
	path := s.key(key)
	resp, err := s.read(ctx, &s.asked, opGet, path)
	if err != nil {
		return asStatus(ctx, err)
	}
	for kvs := resp.Kvs; ; {
		if len(kvs) == 0 {
			return s.notFound(key)
		}
		if _, _, err := s.decode(kvs[0]); err == nil {
			return apierrors.NewConflict(s.info.GroupResource(), key.Name,
				errors.New("the object can be read, so it cannot be deleted as one that cannot"))
		}
		if dryRun {
			return nil
		}
		_, cur, ok, err := s.commit(ctx, &s.asked, opDelete, kvs[0].Key, kvs[0].ModRevision, deleteOp(kvs[0].Key))
		if err != nil || ok {
			return writeStatus(ctx, err)
		}
		kvs = kvs[:0]
		if cur != nil {
			kvs = append(kvs, cur)
		}
	}
}
