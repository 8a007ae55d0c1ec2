package etcd

import (
	"context"

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
