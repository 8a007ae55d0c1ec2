package etcd

import (
	"context"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// reading counts serializable reads.
type reading struct {
	clientv3.KV
	serializable int
}

func (r *reading) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if clientv3.OpGet(key, opts...).IsSerializable() {
		r.serializable++
	}
	return r.KV.Get(ctx, key, opts...)
}

// A list with Any is read from one member; the rest of a list at a compacted revision is the
// latest state, whatever the first page was.
func TestWhatMayBeReadFromAnyMember(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	store := c.Store(storetest.Namespaced())
	mustCreate(t, store, "x")
	kv := &reading{KV: c.etcd.KV}
	c.etcd.KV = kv
	at := resource.At{Freshness: resource.Any}
	for _, tt := range []struct {
		opts resource.ListOptions
		any  int
	}{
		{resource.ListOptions{}, 0},
		{resource.ListOptions{At: at}, 1},
		{resource.ListOptions{At: at, Continue: resource.EncodeContinue(resource.InconsistentRevision, "a/a")}, 0},
	} {
		kv.serializable = 0
		list, err := store.List(t.Context(), tt.opts)
		if err != nil || len(list.Items) != 1 || kv.serializable != tt.any {
			t.Errorf("%+v: %v, %d reads from any member, want %d", tt.opts, err, kv.serializable, tt.any)
		}
	}
}
