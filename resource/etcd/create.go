package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// Create stores a new object.
func (s *store) Create(ctx context.Context, key resource.Key, obj *resource.Object, ttl time.Duration) (*resource.Object, error) {
	made, _, err := s.write(ctx, opCreate, s.key(key), 0, obj, ttl)
	if err != nil {
		return nil, err
	}
	if made == nil {
		return nil, apierrors.NewAlreadyExists(s.info.GroupResource(), key.Name)
	}
	return made, nil
}

// write commits an object, under a lease if it has a TTL, and returns it with the
// revision that it got. Where the key's mod revision is not rev any more it
// returns nil, and the key's value as cur. Errors are StatusErrors.
func (s *store) write(ctx context.Context, op operation, path string, rev int64, obj *resource.Object, ttl time.Duration) (made *resource.Object, cur *mvccpb.KeyValue, err error) {
	stored := obj.Stored()
	value, err := s.encode(path, stored)
	if err != nil {
		return nil, nil, err
	}
	done := s.recent.begin(path, obj, stored)
	at, cur, ok, err := s.put(ctx, op, []byte(path), value, rev, ttl)
	if err != nil || !ok {
		return nil, cur, err
	}
	return done.at(at), nil, nil
}

// put commits a value, under a lease if it has a TTL. Results are those of commit;
// errors are StatusErrors.
func (s *store) put(ctx context.Context, op operation, key, value []byte, rev int64, ttl time.Duration) (at int64, cur *mvccpb.KeyValue, ok bool, err error) {
	if ttl <= 0 {
		at, cur, ok, err = s.commit(ctx, &s.asked, op, key, rev, putOp(key, value, 0))
		return at, cur, ok, writeStatus(ctx, err)
	}
	for again := false; ; again = true {
		lease, err := s.leases.take(ctx, ttl)
		if err != nil {
			return 0, nil, false, asStatus(ctx, err)
		}
		at, cur, ok, err = s.commit(ctx, &s.asked, op, key, rev, putOp(key, value, lease))
		if again || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return at, cur, ok, writeStatus(ctx, err)
		}
		// The shared lease was revoked, or etcd was restored from a backup without it.
		s.leases.forget(lease)
	}
}
