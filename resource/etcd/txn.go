package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/resource"
)

// putOp returns the operation that writes a value, under a lease unless that is 0.
func putOp(key, value []byte, lease clientv3.LeaseID) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
		RequestPut: &etcdserverpb.PutRequest{Key: key, Value: value, Lease: int64(lease)},
	}}
}

// deleteOp returns the operation that removes a key.
func deleteOp(key []byte) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: key},
	}}
}

// commit executes op if the mod revision of the key is rev (0: the key does not exist). If
// it is not, ok is false and cur is the current value, nil for none. With a context of a
// leader that has been replaced the error is a deposed; other errors are those of etcd's
// client. The request is counted under kind.
func (c *Client) commit(ctx context.Context, scope *scope, kind operation, key []byte, rev int64, op *etcdserverpb.RequestOp) (at int64, cur *mvccpb.KeyValue, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	txn := &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{
			Key: key, Target: etcdserverpb.Compare_MOD, Result: etcdserverpb.Compare_EQUAL,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: rev},
		}},
		Success: []*etcdserverpb.RequestOp{op},
		Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{
			RequestRange: &etcdserverpb.RangeRequest{Key: key},
		}}},
	}
	leader, _ := ctx.Value(fenceKey{}).(*fence)
	leader.guard(txn)
	start := time.Now()
	resp, err := c.writes.Txn(ctx, txn, c.callOptions...)
	scope.count(ctx, kind, start, err)
	if err != nil {
		return 0, nil, false, clientv3.ContextError(ctx, err)
	}
	if resp.Succeeded {
		return resp.Header.Revision, nil, true, nil
	}
	if err := leader.broken(resp.Responses); err != nil {
		return 0, nil, false, err
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		cur = kvs[0]
	}
	return resp.Header.Revision, cur, false, nil
}

// write commits an object, under a lease if it has a TTL, and returns it with its new
// revision. If the mod revision of the key is not rev, made is nil and cur is the current
// value. Errors are StatusErrors.
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

// put commits a value, under a lease if it has a TTL. Results are those of commit; errors
// are StatusErrors.
func (s *store) put(ctx context.Context, op operation, key, value []byte, rev int64, ttl time.Duration) (at int64, cur *mvccpb.KeyValue, ok bool, err error) {
	if ttl <= 0 {
		at, cur, ok, err = s.commit(ctx, &s.scope, op, key, rev, putOp(key, value, 0))
		return at, cur, ok, writeStatus(ctx, err)
	}
	for again := false; ; again = true {
		lease, err := s.leases.take(ctx, ttl)
		if err != nil {
			return 0, nil, false, asStatus(ctx, err)
		}
		at, cur, ok, err = s.commit(ctx, &s.scope, op, key, rev, putOp(key, value, lease))
		if again || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return at, cur, ok, writeStatus(ctx, err)
		}
		// The shared lease was revoked, or etcd was restored from a backup without it.
		s.leases.forget(lease)
	}
}
