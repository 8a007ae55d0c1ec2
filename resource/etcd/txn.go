package etcd

import (
	"bytes"
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
// it is not, ok is false and cur is the current value, nil for none. If a fence
// of the context stops it the error is a fenced; other errors are those of etcd's
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
	fence := fenceOf(ctx, txn)
	fence.guard(txn)
	resp, lost, err := c.transact(ctx, scope, kind, txn)
	if lost != nil && resp == nil && rev == 0 {
		if at, ok = c.created(ctx, txn); ok {
			return at, nil, true, nil
		}
	}
	if err != nil {
		return 0, nil, false, clientv3.ContextError(ctx, err)
	}
	if resp.Succeeded {
		return resp.Header.Revision, nil, true, nil
	}
	if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
		cur = kvs[0]
	}
	if lost != nil && rev != 0 && (cur == nil || cur.ModRevision != rev) {
		switch at, ok, err = c.executed(ctx, txn); {
		case err != nil:
			return 0, nil, false, lost
		case ok:
			return at, nil, true, nil
		}
	}
	if err := fence.check(resp.Responses); err != nil {
		return 0, nil, false, err
	}
	return resp.Header.Revision, cur, false, nil
}

// The pause before a transaction is sent again grows from minRepeat to maxRepeat.
const (
	minRepeat = 50 * time.Millisecond
	maxRepeat = time.Second
)

// transact sends a transaction, and again while it is not known whether it was executed: a member
// of etcd that stops, or a leader that changes, loses answers. The revision in the condition of the
// transaction lets it be executed once at most. That of a creation has none: an object that was
// created, and deleted by another client, would be created again. So it is sent once. lost is the
// error of an attempt that may have been executed.
func (c *Client) transact(ctx context.Context, scope *scope, kind operation, txn *etcdserverpb.TxnRequest) (resp *etcdserverpb.TxnResponse, lost, err error) {
	for wait := minRepeat; ; wait = min(2*wait, maxRepeat) {
		start := time.Now()
		resp, err := c.writes.Txn(ctx, txn, c.callOptions...)
		scope.count(ctx, kind, start, err)
		switch {
		case err == nil:
			return resp, lost, nil
		case lost == nil && notDone(err):
			return nil, nil, err
		case lost == nil:
			lost = err
		}
		if creates(txn) || pause(ctx, wait) != nil {
			return nil, lost, lost
		}
	}
}

// creates reports whether a transaction is executed only if its key does not exist.
func creates(txn *etcdserverpb.TxnRequest) bool { return txn.Compare[0].GetModRevision() == 0 }

// created reports whether a creation without an answer was executed, and at which revision: its value
// is stored. A value has the UID of its object.
func (c *Client) created(ctx context.Context, txn *etcdserverpb.TxnRequest) (at int64, ok bool) {
	for pause(ctx, minRepeat) == nil {
		resp, err := c.etcd.Get(ctx, string(txn.Compare[0].Key))
		if err != nil {
			continue
		}
		if len(resp.Kvs) > 0 && bytes.Equal(resp.Kvs[0].Value, txn.Success[0].GetRequestPut().Value) {
			return resp.Kvs[0].ModRevision, true
		}
		return 0, false
	}
	return 0, false
}

// errUnknown: nothing says whether a transaction was executed.
var errUnknown = errors.New("the key has been written since")

// executed reports whether a transaction was executed after which its key is not in the state of
// its condition any more, and at which revision, by the first change since then. The deletion of the
// same state by another client is as good as its own. An update to the same value is not: two
// clients that each count one up write the same, and one of them must do it again. So the outcome
// of an update is unknown then.
func (c *Client) executed(ctx context.Context, txn *etcdserverpb.TxnRequest) (at int64, ok bool, err error) {
	key, rev, put := txn.Compare[0].Key, txn.Compare[0].GetModRevision(), txn.Success[0].GetRequestPut()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for resp := range c.etcd.Watch(ctx, string(key), clientv3.WithRev(rev+1)) {
		if err := resp.Err(); err != nil {
			return 0, false, err
		}
		for _, first := range resp.Events {
			deleted := first.Type == mvccpb.Event_DELETE
			if put != nil && !deleted && bytes.Equal(first.Kv.Value, put.Value) {
				return 0, false, errUnknown
			}
			return first.Kv.ModRevision, put == nil && deleted, nil
		}
	}
	return 0, false, ctx.Err()
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
