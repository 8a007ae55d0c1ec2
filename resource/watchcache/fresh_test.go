package watchcache_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/watchcache"
)

// A read of the latest state waits until the cache is at the revision of the storage, and
// requests progress meanwhile.
func TestLatestWaitsForTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.reset(5)
		f.feed.current.Store(7)
		got := make(chan error, 1)
		go func() {
			_, err := f.store.Get(t.Context(), resource.Key{Namespace: "a", Name: "x"}, resource.At{})
			got <- err
		}()
		synctest.Wait() // it has read the revision
		f.feed.put(thing("x", 6))
		time.Sleep(250 * time.Millisecond)
		if len(got) > 0 {
			t.Fatal("the read returned before the cache was at 7")
		}
		if n := f.feed.asked.Load(); n != 3 {
			t.Errorf("progress was requested %d times in 250 ms, want 3", n)
		}
		f.feed.deliver(func(s resource.FeedSink) { s.Progress(7) })
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		before := f.feed.asked.Load()
		if got, _ := f.names(resource.ListOptions{}); got != "x" {
			t.Errorf("listed %q, want x", got)
		}
		time.Sleep(time.Second)
		if n := f.feed.asked.Load(); n != before {
			t.Errorf("progress was requested %d times without a waiting read", n-before)
		}
		if n := f.beneath.calls.Load(); n != 0 {
			t.Errorf("the store beneath was read %d times", n)
		}
	})
}

// If the cache does not reach a revision in time, a read of the latest state goes to the
// store beneath, and one of a later revision fails.
func TestFallBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.reset(5, thing("x", 5))
		f.feed.current.Store(9)
		start := time.Now()
		_, err := f.store.List(t.Context(), resource.ListOptions{})
		if !errors.Is(err, errBeneath) || time.Since(start) != 3*time.Second {
			t.Errorf("a latest list at a revision that the feed does not reach: %v after %v", err, time.Since(start))
		}
		f.feed.fail.Store(true)
		if _, err := f.store.Get(t.Context(), resource.Key{Namespace: "a", Name: "x"}, resource.At{}); !errors.Is(err, errBeneath) {
			t.Errorf("a latest read while the storage is away: %v", err)
		}
		if _, err := f.store.Watch(t.Context(), resource.WatchOptions{InitialEvents: true}); !apierrors.IsServiceUnavailable(err) {
			t.Errorf("a watch while the storage is away: %v", err)
		}
		start = time.Now()
		_, err = f.store.List(t.Context(), resource.ListOptions{At: resource.At{Freshness: resource.NotOlderThan, Revision: 9}})
		if !apierrors.HasStatusCause(err, resource.CauseResourceVersionTooLarge) || time.Since(start) != 3*time.Second {
			t.Errorf("a revision of the future: %v after %v", err, time.Since(start))
		}
		if got, _ := f.names(resource.ListOptions{At: resource.At{Freshness: resource.Any}}); got != "x" {
			t.Errorf("any state: %q", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = f.store.Get(ctx, resource.Key{}, resource.At{Freshness: resource.NotOlderThan, Revision: 9})
		if !apierrors.HasStatusCause(err, resource.CauseResourceVersionTooLarge) {
			t.Errorf("a deadline before the wait is over: %v", err)
		}
		if _, err = f.store.Watch(ctx, resource.WatchOptions{Since: 9}); !apierrors.HasStatusCause(err, resource.CauseResourceVersionTooLarge) {
			t.Errorf("a short watch from the future: %v", err)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err = f.store.Get(gone, resource.Key{}, resource.At{Freshness: resource.NotOlderThan, Revision: 9})
		if !apierrors.IsTimeout(err) || apierrors.HasStatusCause(err, resource.CauseResourceVersionTooLarge) {
			t.Errorf("an ended context: %v", err)
		}
	})
}

// Before the cache is ready, single objects and pages come from the store beneath; other
// lists, and watches, wait and then fail with 429.
func TestBeforeReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		if f.cache.Ready() || f.cache.Revision() != 0 {
			t.Error("ready before the first state")
		}
		if _, err := f.store.Get(t.Context(), resource.Key{}, resource.At{}); !errors.Is(err, errBeneath) {
			t.Errorf("get: %v", err)
		}
		if _, err := f.store.List(t.Context(), resource.ListOptions{Limit: 5}); !errors.Is(err, errBeneath) {
			t.Errorf("plain list: %v", err)
		}
		for name, try := range map[string]func() error{
			"list": func() error { _, err := f.store.List(t.Context(), resource.ListOptions{}); return err },
			"selected list": func() error {
				_, err := f.store.List(t.Context(), resource.ListOptions{Limit: 5, Selector: selector(t, "a=b")})
				return err
			},
			"watch": func() error { _, err := f.store.Watch(t.Context(), resource.WatchOptions{Since: 1}); return err },
		} {
			err := try()
			if seconds, ok := apierrors.SuggestsClientDelay(err); !apierrors.IsTooManyRequests(err) || !ok || seconds < 1 {
				t.Errorf("%s: %v, retry after %d", name, err, seconds)
			}
		}
		// A read that waits when the state arrives is served.
		got := make(chan error)
		go func() { _, err := f.store.List(t.Context(), resource.ListOptions{}); got <- err }()
		synctest.Wait()
		f.feed.reset(5)
		if err := <-got; err != nil {
			t.Error(err)
		}
		if err := f.cache.WaitReady(t.Context()); err != nil || !f.cache.Ready() {
			t.Errorf("ready: %v", err)
		}
	})
}

// A store that is opened later has the objects of its resource, and all changes from then on.
func TestResourceInstalledLater(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.feed.reset(5, thing("x", 5))
	late := &resource.Info{Group: "example.com", Versions: []string{"v1"}, Resource: "late", Kind: "Late", Path: "example.com/late"}
	o := thing("y", 6)
	f.feed.current.Store(6)
	f.feed.deliver(func(s resource.FeedSink) {
		s.Apply([]resource.Change{{Path: "example.com/late/y", Object: o, Revision: 6, Create: true}})
	})
	store := f.cache.Store(late)
	if got, err := store.Get(t.Context(), resource.Key{Name: "y"}, resource.At{}); err != nil || got != o {
		t.Errorf("got %v, %v", got, err)
	}
	w, err := store.Watch(t.Context(), resource.WatchOptions{Since: 6})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := store.Watch(t.Context(), resource.WatchOptions{Since: 5}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from before the resource was served: %v", err)
	}
	f.feed.current.Store(7)
	f.feed.deliver(func(s resource.FeedSink) {
		s.Apply([]resource.Change{{Path: "example.com/late/y", Revision: 7}})
	})
	if got := f.events(w, 1); got[0] != "-y@7" {
		t.Errorf("got %v", got)
	}
}
