package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// putOp is the operation that writes a value, under a lease unless that is 0.
// Operations are made in etcd's own form: those of its client hold values as
// strings and copy them twice.
func putOp(key, value []byte, lease clientv3.LeaseID) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{
		RequestPut: &etcdserverpb.PutRequest{Key: key, Value: value, Lease: int64(lease)},
	}}
}

// deleteOp is the operation that removes a key.
func deleteOp(key []byte) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: key},
	}}
}

// commit carries out op if the key's mod revision still is rev (0: it does not
// exist). If it is not, ok is false and cur is the key's value, nil for none.
// Under a leader's context it is also not carried out, and the error is deposed, if
// that is none any more. Other errors are those of etcd's client. It is counted under
// kind.
func (c *Client) commit(ctx context.Context, to *account, kind operation, key []byte, rev int64, op *etcdserverpb.RequestOp) (at int64, cur *mvccpb.KeyValue, ok bool, err error) {
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
	leader := fenceOf(ctx)
	leader.guard(txn)
	start := time.Now()
	resp, err := c.writes.Txn(ctx, txn, c.callOptions...)
	to.note(ctx, kind, start, err)
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
