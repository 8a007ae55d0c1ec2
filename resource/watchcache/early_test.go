package watchcache_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"

	"portico/internal/testing/memstore"
	"portico/resource"
	"portico/resource/watchcache"
)

// An early store reads from beneath until the cache is ready; its watches end then, and the
// next ones are the cache's.
func TestEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beneath, feed := memstore.New(), newFakeFeed()
		c := watchcache.New(watchcache.Config{Feed: feed, Store: beneath.Store})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = c.Run(ctx) }()
		put := func(name string) *resource.Object {
			o := thing(name, 0)
			made, err := beneath.Store(things).Create(ctx, o.Key(), o, 0)
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		first := put("x")
		s := c.Early(things)
		w, err := s.Watch(ctx, resource.WatchOptions{InitialEvents: true})
		if err != nil {
			t.Fatal(err)
		}
		second := put("y")
		if l, err := s.List(ctx, resource.ListOptions{}); err != nil || len(l.Items) != 2 {
			t.Fatalf("listed %v, %v", l, err)
		}
		events, err := w.Next(ctx)
		if err != nil || len(events) != 2 || events[0].Object.Name != "x" || events[1].Type != resource.Synced {
			t.Fatalf("%v, %v", events, err)
		}
		again, err := resource.Parse(slices.Clone(first.Data)) // as from etcd
		if err != nil {
			t.Fatal(err)
		}
		feed.reset(second.Revision, again.WithRevision(first.Revision), second)
		if events, err := w.Next(ctx); !errors.Is(err, io.EOF) {
			t.Fatalf("the watch goes on: %v, %v", events, err)
		}
		w.Close()
		next, err := s.Watch(ctx, resource.WatchOptions{Since: second.Revision})
		if err != nil {
			t.Fatal(err)
		}
		feed.put(thing("z", second.Revision+1)) // which only the cache knows
		if events, err := next.Next(ctx); err != nil || events[0].Object.Name != "z" {
			t.Errorf("%v, %v", events, err)
		}
		if l, err := s.List(ctx, resource.ListOptions{At: resource.At{Freshness: resource.Any}}); err != nil || len(l.Items) != 3 {
			t.Errorf("listed %v, %v", l, err)
		} else if l.Items[0] != events[0].Object {
			t.Error("the cache has another copy of an object that an early watch was sent")
		}
		cancel()
		synctest.Wait()
	})
}

// slowList is a store. Its List returns the result only after during has run.
type slowList struct {
	resource.Store
	during func()
}

func (s slowList) List(ctx context.Context, opts resource.ListOptions) (*resource.List, error) {
	l, err := s.Store.List(ctx, opts)
	s.during()
	return l, err
}

// The cache keeps one copy of an object also if its first state arrives while an early store
// reads from beneath.
func TestEarlyListAfterFirstState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		beneath, feed := memstore.New(), newFakeFeed()
		ctx, cancel := context.WithCancel(t.Context())
		o := thing("x", 0)
		made, err := beneath.Store(things).Create(ctx, o.Key(), o, 0)
		if err != nil {
			t.Fatal(err)
		}
		again, err := resource.Parse(slices.Clone(made.Data)) // as from etcd
		if err != nil {
			t.Fatal(err)
		}
		again = again.WithRevision(made.Revision)
		c := watchcache.New(watchcache.Config{Feed: feed, Store: func(info *resource.Info) resource.Store {
			return slowList{beneath.Store(info), func() { feed.reset(made.Revision, again) }}
		}})
		go func() { _ = c.Run(ctx) }()
		w, err := c.Early(things).Watch(ctx, resource.WatchOptions{InitialEvents: true})
		if err != nil {
			t.Fatal(err)
		}
		events, err := w.Next(ctx)
		if err != nil || len(events) == 0 {
			t.Fatalf("%v, %v", events, err)
		}
		if events[0].Object != again {
			t.Error("the watch was sent another copy than the cache has")
		}
		w.Close()
		cancel()
		synctest.Wait()
	})
}
