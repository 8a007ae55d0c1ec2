package etcd

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// watched is the store of etcd, which has no watches, with those of a cache.
type watched struct {
	resource.Store
	cache resource.Store
}

func (w watched) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	return w.cache.Watch(ctx, opts)
}

// Stores of etcd, with encryption and without, and a cache over them fulfil the contract of
// a Store.
func TestStore(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	t.Run("Etcd", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, info *resource.Info) resource.Store {
			c := s.client(t, encrypted(t, "one"))
			return watched{c.Store(info), cached(t, c).Store(info)}
		})
	})
	t.Run("Cache", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, info *resource.Info) resource.Store {
			return cached(t, s.client(t), "another/", info.RangePath("")).Store(info)
		})
	})
	t.Run("Hinted", func(t *testing.T) {
		t.Parallel()
		storetest.RunHinted(t, func(t *testing.T, info *resource.Info) resource.Store { return s.client(t).Store(info) })
	})
}

// After a compaction, requests for the history that was removed fail as Expired.
func TestHistory(t *testing.T) {
	t.Parallel()
	open := func(store func(c *Client, info *resource.Info) resource.Store) storetest.OpenHistory {
		return func(t *testing.T, info *resource.Info) (resource.Store, func(*testing.T, int64)) {
			c := newServer(t).client(t)
			return store(c, info), func(t *testing.T, rev int64) { compact(t, c, rev) }
		}
	}
	t.Run("Etcd", func(t *testing.T) {
		storetest.RunHistory(t, open((*Client).Store))
	})
	t.Run("Cache", func(t *testing.T) {
		storetest.RunLongHistory(t, open(func(c *Client, info *resource.Info) resource.Store { return cached(t, c).Store(info) }))
	})
}

// Feeds fulfil their contract. With encryption, they deliver plain values, and etcd has
// encrypted ones.
func TestFeed(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	t.Run("OneRange", func(t *testing.T) {
		storetest.RunFeed(t, func(t *testing.T, a, b *resource.Info) (resource.Store, resource.Store, resource.Feed) {
			c := s.client(t)
			return c.Store(a), c.Store(b), c.Feed()
		})
	})
	t.Run("TwoRanges", func(t *testing.T) {
		storetest.RunFeed(t, func(t *testing.T, a, b *resource.Info) (resource.Store, resource.Store, resource.Feed) {
			c := s.client(t, encrypted(t, "one"))
			return c.Store(a), c.Store(b), c.Feed(a.RangePath(""), b.RangePath(""))
		})
	})
	c := s.client(t, encrypted(t, "one"))
	mustCreate(t, c.Store(storetest.Namespaced()), "x")
	if v := raw(t, c, pathX); strings.Contains(v, "Setting") || !strings.HasPrefix(v, "k8s:enc:aesgcm:v1:one:") {
		t.Errorf("etcd has %q, want an encrypted value", v)
	}
}

// counted counts the reads of a client.
type counted struct {
	clientv3.KV
	reads atomic.Int64
}

func (k *counted) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	k.reads.Add(1)
	return k.KV.Get(ctx, key, opts...)
}

// One more kind costs no connection, no read of etcd and no goroutine.
func TestKindsAreFree(t *testing.T) {
	const kinds = 2000
	s := newServer(t)
	c := s.client(t)
	cache := cached(t, c)
	store := func(i int) resource.Store {
		return cache.Store(&resource.Info{
			Group: "storetest.portico.dev", Versions: []string{"v1"}, Kind: "Setting", Namespaced: true,
			Resource: fmt.Sprintf("settings%d", i), Path: fmt.Sprintf("storetest.portico.dev/settings%d", i),
		})
	}
	mustCreate(t, store(0), "x") // everything that one kind needs is there now
	if _, err := store(0).List(t.Context(), resource.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	kv := &counted{KV: c.etcd.KV}
	c.etcd.KV = kv
	dialed, goroutines := s.Dialed.Load(), runtime.NumGoroutine()
	for i := range kinds {
		l, err := store(i+1).List(t.Context(), resource.ListOptions{At: resource.At{Freshness: resource.Any}})
		if err != nil || len(l.Items) != 0 {
			t.Fatalf("list of kind %d: got %v, %v, want an empty list", i, l, err)
		}
	}
	if n := kv.reads.Load(); n != 0 {
		t.Errorf("got %d reads of etcd for %d kinds, want 0", n, kinds)
	}
	if n := s.Dialed.Load(); n != dialed {
		t.Errorf("got %d connections, want %d as before", n, dialed)
	}
	if n := runtime.NumGoroutine(); n > goroutines+20 { // etcd's own come and go
		t.Errorf("got %d goroutines, want about %d as before", n, goroutines)
	}
	made := mustCreate(t, store(kinds), "last")
	got, err := store(kinds).Get(t.Context(), made.Key(), resource.At{})
	if err != nil || got.Revision != made.Revision {
		t.Errorf("object of the last kind: got %v, %v", got, err)
	}
}
