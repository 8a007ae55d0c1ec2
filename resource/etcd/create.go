package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// Create stores a new object.
func (s *store) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	path := s.key(key)
	op, err := s.put(ctx, path, obj, ttl)
	if err != nil {
		return nil, err
	}
	at, _, ok, err := s.commit(ctx, path, 0, op)
	if err != nil {
		return nil, asStatus(ctx, err)
	}
	if !ok {
		return nil, apierrors.NewAlreadyExists(s.info.GroupResource(), key.Name)
	}
	return obj.WithRevision(at), nil
}

// put makes the operation that writes an object. It grants a lease if need be.
func (s *store) put(ctx context.Context, path string, obj *resource.Object, ttl time.Duration) (clientv3.Op, error) {
	value, err := s.encode(path, obj)
	if err != nil {
		return clientv3.Op{}, err
	}
	if ttl <= 0 {
		return clientv3.OpPut(path, value), nil
	}
	lease, err := s.leases.take(ctx, ttl)
	if err != nil {
		return clientv3.Op{}, asStatus(ctx, err)
	}
	return clientv3.OpPut(path, value, clientv3.WithLease(lease)), nil
}
