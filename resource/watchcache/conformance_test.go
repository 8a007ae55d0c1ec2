package watchcache_test

import (
	"context"
	"testing"
	"time"

	"portico/internal/testing/memstore"
	"portico/internal/testing/storetest"
	"portico/resource"
	"portico/resource/watchcache"
)

// open starts a cache over a memory storage and returns both.
func open(t *testing.T) (*watchcache.Cache, *memstore.Storage) {
	t.Helper()
	m := memstore.New()
	c := watchcache.New(watchcache.Config{Feed: m.Feed(), Store: m.Store, FreshTimeout: time.Second})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx) // it returns ctx's error
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	if err := c.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, m
}

// A cache over a storage in memory fulfils the contract of a Store.
func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.RunInBubble(t, func(t *testing.T, info *resource.Info) resource.Store {
		c, _ := open(t)
		return c.Store(info)
	})
}
