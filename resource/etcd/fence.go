package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
)

// fence is the key of an elected leader, which goes with its lease. Writes in the
// leader's name are carried out while it is there: what a process that was stopped
// still has to write when it goes on, its successor may have written otherwise.
type fence struct {
	key []byte
	rev int64 // that it was made at
}

type fenceKey struct{}

// fenced returns a context whose writes fail once leadership is lost.
func fenced(ctx context.Context, f *fence) context.Context {
	return context.WithValue(ctx, fenceKey{}, f)
}

// fenceOf returns the fence of a context; nil: it has none.
func fenceOf(ctx context.Context) *fence {
	f, _ := ctx.Value(fenceKey{}).(*fence)
	return f
}

// guard has a transaction fail if the leader is not that any more, and then say so.
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

// broken returns the error of a transaction that failed because of the fence; nil: it
// did because of the key.
func (f *fence) broken(answers []*etcdserverpb.ResponseOp) error {
	if f == nil {
		return nil
	}
	kvs := answers[len(answers)-1].GetResponseRange().Kvs
	if len(kvs) > 0 && kvs[0].CreateRevision == f.rev {
		return nil
	}
	return &deposed{resource.Unavailable("the write was not carried out: the process is not the elected one any more", retryAfter)}
}

// deposed is the Status of a write in the name of a leader that is none any more.
type deposed struct{ *apierrors.StatusError }

// GRPCStatus has the code of what was not carried out (errors.go).
func (e *deposed) GRPCStatus() *status.Status { return status.New(codes.Aborted, e.Error()) }
