package etcd

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/internal/testing/httpstore"
	"portico/internal/testing/storetest"
	"portico/resource"
	"portico/resource/client"
	"portico/resource/rest"
	"portico/resource/rest/handlers"
	"portico/resource/watchcache"
)

// cached runs a watch cache over a client's etcd.
func cached(t *testing.T, c *Client, ranges ...string) *watchcache.Cache {
	t.Helper()
	return run(t, watchcache.Config{Feed: c.Feed(ranges...), Store: c.Store, Logger: c.log, FreshTimeout: 3 * time.Second})
}

// watched is a store of etcd with the watches of a cache over it, for the suites that watch.
type watched struct {
	resource.Hinted
	cache resource.Store
}

func (w watched) Watch(ctx context.Context, opts resource.WatchOptions) (resource.Watcher, error) {
	return w.cache.Watch(ctx, opts)
}

func withWatches(t *testing.T, c *Client, info *resource.Info, history watchcache.History) resource.Store {
	cache := run(t, watchcache.Config{Feed: c.Feed(), Store: c.Store, Logger: c.log, History: history})
	return watched{c.Store(info).(resource.Hinted), cache.Store(info)}
}

func run(t *testing.T, cfg watchcache.Config) *watchcache.Cache {
	t.Helper()
	cache := watchcache.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cache.Run(ctx) // it returns ctx's error
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	if err := cache.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return cache
}

// served serves a store and returns a store over HTTP.
func served(t *testing.T, store resource.Store) resource.Store {
	t.Helper()
	api := handlers.New(handlers.Config{Resources: []*rest.Resource{{
		Kind: &rest.Kind{
			Info: *store.Info(), Codec: storetest.Codec{}, ReturnDeleted: true,
			Strategy: rest.Strategy{ValidateName: func(string, bool) []string { return nil }},
		},
		Store: store,
	}}})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		act := resource.ParseAction(r)
		act.User = &resource.User{Name: "tester"}
		api.ServeHTTP(w, r.WithContext(resource.WithAction(r.Context(), act)))
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return httpstore.New(client.New(client.Config{BaseURL: server.URL, Transport: server.Client().Transport}), store.Info())
}

// Stores stacked on etcd pass the suite.
func TestStacks(t *testing.T) {
	for name, stack := range map[string]func(t *testing.T, c *Client, info *resource.Info) resource.Store{
		"cache": func(t *testing.T, c *Client, info *resource.Info) resource.Store { return cached(t, c).Store(info) },
		"cache of two ranges": func(t *testing.T, c *Client, info *resource.Info) resource.Store {
			return cached(t, c, "another/", info.RangePath("")).Store(info)
		},
		"http over cache": func(t *testing.T, c *Client, info *resource.Info) resource.Store {
			return served(t, cached(t, c).Store(info))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			storetest.Run(t, func(t *testing.T, info *resource.Info) resource.Store { return stack(t, s.client(t), info) })
			storetest.RunLongHistory(t, func(t *testing.T, info *resource.Info) (resource.Store, func(*testing.T, int64)) {
				c := newServer(t).client(t)
				return stack(t, c, info), func(t *testing.T, rev int64) { compact(t, c, rev) }
			})
		})
	}
}

func compact(t *testing.T, c *Client, rev int64) {
	t.Helper()
	if _, err := c.etcd.Compact(t.Context(), rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
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

// watchers returns the number of watches of the etcd servers in this process.
func watchers(t *testing.T) float64 {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "etcd_debugging_mvcc_watcher_total" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("etcd has no metric of its watchers")
	return 0
}

// One more kind costs no connection, no watch, no list and no goroutine.
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
	watches := watchers(t)
	dialed, _ := s.traffic()
	goroutines := runtime.NumGoroutine()
	for i := range kinds {
		l, err := store(i+1).List(t.Context(), resource.ListOptions{At: resource.At{Freshness: resource.Any}})
		if err != nil || len(l.Items) != 0 {
			t.Fatalf("list of kind %d: %v, %v", i, l, err)
		}
	}
	if n := kv.reads.Load(); n != 0 {
		t.Errorf("%d kinds made %d reads of etcd", kinds, n)
	}
	if n := watchers(t); n != watches {
		t.Errorf("etcd has %v watchers, before the kinds came %v", n, watches)
	}
	if n, _ := s.traffic(); n != dialed {
		t.Errorf("%d connections, before the kinds came %d", n, dialed)
	}
	if n := runtime.NumGoroutine(); n > goroutines+20 { // etcd's own come and go
		t.Errorf("%d goroutines, before the kinds came %d", n, goroutines)
	}
	made := mustCreate(t, store(kinds), "last")
	got, err := store(kinds).Get(t.Context(), made.Key(), resource.At{})
	if err != nil || got.Revision != made.Revision {
		t.Errorf("the last kind does not work: %v, %v", got, err)
	}
}
