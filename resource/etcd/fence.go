package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// fence is a condition on a key that transactions with its context have in addition: that it has a create
// revision, 0 if it must not exist. The key is that of an elected leader, which is removed with its lease, so
// that a leader that has been replaced cannot write; or that of a Bar.
type fence struct {
	key []byte
	rev int64
	// creations: transactions that create nothing do not have the condition.
	creations bool
	broken    *apierrors.StatusError
}

// fenceKey is the context key of a *fence.
type fenceKey struct{}

// fenceOf returns the fence that a transaction of a context has; nil: none.
func fenceOf(ctx context.Context, txn *etcdserverpb.TxnRequest) *fence {
	f, _ := ctx.Value(fenceKey{}).(*fence)
	if f != nil && f.creations && !creates(txn) {
		return nil
	}
	return f
}

// guard adds the condition to a transaction. f may be nil.
func (f *fence) guard(txn *etcdserverpb.TxnRequest) {
	if f == nil {
		return
	}
	txn.Compare = append(txn.Compare, &etcdserverpb.Compare{
		Key: f.key, Target: etcdserverpb.Compare_CREATE, Result: etcdserverpb.Compare_EQUAL,
		TargetUnion: &etcdserverpb.Compare_CreateRevision{CreateRevision: f.rev},
	})
	txn.Failure = append(txn.Failure, &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestRange{
		RequestRange: &etcdserverpb.RangeRequest{Key: f.key, KeysOnly: true},
	}})
}

// check returns a fenced if a transaction failed because of the condition, and nil if it failed because of its
// own key. f may be nil.
func (f *fence) check(answers []*etcdserverpb.ResponseOp) error {
	if f == nil {
		return nil
	}
	var rev int64
	if kvs := answers[len(answers)-1].GetResponseRange().Kvs; len(kvs) > 0 {
		rev = kvs[0].CreateRevision
	}
	if rev == f.rev {
		return nil
	}
	return &fenced{f.broken}
}

// fenced is the error of a transaction that a fence has stopped.
type fenced struct{ *apierrors.StatusError }

// GRPCStatus has the code of a write that was not executed (errors.go).
func (e *fenced) GRPCStatus() *status.Status { return status.New(codes.Aborted, e.Error()) }

// BarFamily is the family of the documents that are bars; they have no value.
const BarFamily = "bars"

func (c *Client) barKey(name string) []byte { return []byte(c.Documents(BarFamily).root + name) }

// Bar stops creations with the context of UnlessBarred, of all processes: those that were not carried out when
// it returns never are. It ends after ttl, which must be longer than a request takes. Errors are StatusErrors.
func (c *Client) Bar(ctx context.Context, name string, ttl time.Duration) error {
	lease, err := c.leases.take(ctx, ttl)
	if err != nil {
		return asStatus(ctx, err)
	}
	key := c.barKey(name)
	_, _, _, err = c.commit(ctx, &c.scope, opCreate, key, 0, putOp(key, nil, lease)) // there may be one
	return writeStatus(ctx, err)
}

// UnlessBarred returns a context with which creations fail with barred once Bar was called with the name.
func (c *Client) UnlessBarred(ctx context.Context, name string, barred *apierrors.StatusError) context.Context {
	return context.WithValue(ctx, fenceKey{}, &fence{key: c.barKey(name), creations: true, broken: barred})
}
