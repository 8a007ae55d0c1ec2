package etcd

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// Values that are much larger than those before are not received in one page.
func TestPagesAreBounded(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	const most, small, large, size = 1 << 20, 200, 30, 200 << 10
	kv := &largest{KV: clientv3.NewKVFromKVClient(boundedKV{clientv3.RetryKVClient(c.etcd), most}, c.etcd)}
	c.etcd.KV = kv
	st := c.Store(storetest.Namespaced())
	for i := range small + large {
		name, text := fmt.Sprintf("x%05d", i), "1"
		if i >= small {
			text = strings.Repeat("x", size)
		}
		if i == small+large-1 {
			text = strings.Repeat("x", most+1) // one that is larger by itself
		}
		o := setting(t, name, text)
		if _, err := st.Create(t.Context(), o.Key(), o, 0); err != nil {
			t.Fatal(err)
		}
	}
	l, err := st.List(t.Context(), resource.ListOptions{})
	if err != nil || len(l.Items) != small+large {
		t.Fatalf("listed %v, %v", l, err)
	}
	if kv.refused == 0 || kv.bytes > most {
		t.Errorf("%d pages were refused, the largest that was taken had %d bytes", kv.refused, kv.bytes)
	}
}

// largest records the sizes of pages.
type largest struct {
	clientv3.KV
	bytes, refused int
}

func (l *largest) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := l.KV.Get(ctx, key, opts...)
	if err != nil {
		l.refused++
	} else if len(resp.Kvs) > 1 {
		size := 0
		for _, kv := range resp.Kvs {
			size += len(kv.Value)
		}
		l.bytes = max(l.bytes, size)
	}
	return resp, err
}

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
