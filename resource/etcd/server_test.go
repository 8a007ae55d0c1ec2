package etcd

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"portico/internal/testing/await"
	"portico/internal/testing/etcdtest"
	"portico/internal/testing/storetest"
	"portico/resource"
	"portico/resource/watchcache"
)

// TestMain runs more tests in parallel than there are processors: they mostly wait for etcd.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// server is an etcd that gives each client a prefix of its own.
type server struct {
	*etcdtest.Server
	clients atomic.Int64
}

func newServer(tb testing.TB, configure ...func(*embed.Config)) *server {
	tb.Helper()
	return &server{Server: etcdtest.Start(tb, configure...)}
}

func (s *server) start(tb testing.TB) {
	tb.Helper()
	if err := s.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
}

// client opens a client with a prefix of its own.
func (s *server) client(tb testing.TB, change ...func(*Config)) *Client {
	tb.Helper()
	cfg := Config{
		Endpoints: []string{s.Endpoint()},
		Prefix:    "/t" + strconv.FormatInt(s.clients.Add(1), 10),
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return c
}

// beside opens a client that does not pass the relay.
func (s *server) beside(tb testing.TB, change ...func(*Config)) *Client {
	tb.Helper()
	return s.client(tb, append(change, func(cfg *Config) { cfg.Endpoints = []string{s.DirectEndpoint()} })...)
}

// newCluster starts three members, and a client of them.
func newCluster(tb testing.TB, change ...func(*Config)) ([]*etcdtest.Server, *Client) {
	tb.Helper()
	members := etcdtest.StartCluster(tb, 3)
	first := &server{Server: members[0]}
	return members, first.client(tb, append(change, func(cfg *Config) {
		cfg.Endpoints = append(cfg.Endpoints, members[1].Endpoint(), members[2].Endpoint())
	})...)
}

// under sets the prefix, which clients can share.
func under(prefix string) func(*Config) { return func(cfg *Config) { cfg.Prefix = prefix } }

var keyX = resource.Key{Namespace: "a", Name: "x"}

func setting(t *testing.T, name, data string) *resource.Object {
	t.Helper()
	obj, err := resource.Parse(fmt.Appendf(nil,
		`{"apiVersion":"storetest.portico.dev/v1","kind":"Setting","metadata":{"namespace":"a","name":%q},"data":{"v":%q}}`, name, data))
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func mustCreate(t *testing.T, s resource.Store, name string) *resource.Object {
	t.Helper()
	obj := setting(t, name, "1")
	made, err := s.Create(t.Context(), obj.Key(), obj, 0)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// fill creates n objects named x0000 and so on, each with a value of size bytes.
func fill(t *testing.T, s resource.Store, n, size int) {
	t.Helper()
	value := fmt.Sprintf("%0*d", size, 1)
	var writers sync.WaitGroup
	for first := range 4 {
		writers.Go(func() {
			for i := first; i < n; i += 4 {
				obj := setting(t, fmt.Sprintf("x%04d", i), value)
				if _, err := s.Create(t.Context(), obj.Key(), obj, 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
}

func compact(t *testing.T, c *Client, rev int64) {
	t.Helper()
	if _, err := c.etcd.Compact(t.Context(), rev, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// cached runs a watch cache over a client's etcd.
func cached(t *testing.T, c *Client, ranges ...string) *watchcache.Cache {
	t.Helper()
	cache := watchcache.New(watchcache.Config{Feed: c.Feed(ranges...), Store: c.Store, Logger: c.log, FreshTimeout: 3 * time.Second})
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

// follow runs a feed into a replica until the test ends.
func follow(t *testing.T, f resource.Feed) *storetest.Replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	replica, ended := storetest.NewReplica(), make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.Run(ctx, replica) // it returns ctx's error
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	waitFor(t, replica, storetest.Resets(1))
	return replica
}

func waitFor(t *testing.T, r *storetest.Replica, ok func(*storetest.Replica) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	if err := r.Wait(ctx, ok); err != nil {
		t.Fatal(err)
	}
}

// checkResumed checks that a replica reaches a revision with the state of the store, without
// a second Reset.
func checkResumed(t *testing.T, r *storetest.Replica, s resource.Store, rev int64) {
	t.Helper()
	waitFor(t, r, storetest.At(rev))
	r.Compare(t.Context(), t, s)
	if err := r.Wait(ended(t), storetest.Resets(2)); err == nil {
		t.Error("the feed was reset, want it to resume")
	}
}

// ended returns a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
