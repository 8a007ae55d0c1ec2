package etcd

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"portico/internal/testing/storetest"
	"portico/resource"
	"portico/resource/watchcache"
)

func TestStore(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	storetest.Run(t, func(t *testing.T, info *resource.Info) resource.Store {
		return withWatches(t, s.client(t), info, watchcache.History{})
	})
}
func TestHinted(t *testing.T) {
	t.Parallel()
	storetest.RunHinted(t, newServer(t).open)
}

func TestHistory(t *testing.T) {
	t.Parallel()
	storetest.RunHistory(t, func(t *testing.T, info *resource.Info) (resource.Store, func(*testing.T, int64)) {
		c := newServer(t).client(t)
		return withWatches(t, c, info, watchcache.History{MaxEvents: 1}), func(t *testing.T, rev int64) {
			if _, err := c.etcd.Compact(t.Context(), rev, clientv3.WithCompactPhysical()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

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
			c := s.client(t)
			return c.Store(a), c.Store(b), c.Feed(a.RangePath(""), b.RangePath(""))
		})
	})
}
