package watchcache_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"portico/resource"
	"portico/resource/watchcache"
)

func byName(name string) resource.Selector {
	return resource.Selector{Fields: fields.OneTermEqualSelector("metadata.name", name)}
}

// A watcher that is slower than the history ends; others continue.
func TestSlowWatcherIsEnded(t *testing.T) {
	f := fake(t, watchcache.Config{History: watchcache.History{MaxEvents: 10}})
	f.feed.reset(1)
	slow := f.watch(resource.WatchOptions{Since: 1})
	quick := f.watch(resource.WatchOptions{Since: 1})
	// It watches one object, and is parked until that changes.
	other := f.watch(resource.WatchOptions{Selector: byName("other"), Namespace: "a"})
	asleep, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := other.Next(asleep); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nothing happened, got %v", err)
	}
	for rev := int64(2); rev < 40; rev++ {
		f.feed.put(thing("x", rev))
		if got := f.events(quick, 1); got[0][2:] != fmt.Sprintf("@%d", rev) {
			t.Fatalf("at %d got %v", rev, got)
		}
	}
	if err := f.ended(slow); !apierrors.IsResourceExpired(err) {
		t.Errorf("slow watcher: %v", err)
	}
	f.feed.put(thing("other", 40))
	if got := f.events(other, 1); got[0] != "+other@40" {
		t.Errorf("sleeping watcher: %v", got)
	}
}

// A watch starts from a change within the age of the history, or among its last ones.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{History: watchcache.History{MinEvents: 2}})
		f.feed.reset(1)
		for rev := int64(2); rev <= 9; rev++ {
			f.feed.put(thing("x", rev))
			time.Sleep(20 * time.Second)
		}
		// 9 is 20 s old, 8 40 s, 7 60 s; 6 and before are over 75 s old.
		time.Sleep(10 * time.Second)
		_, err := f.store.Watch(t.Context(), resource.WatchOptions{Since: 5})
		if !apierrors.IsResourceExpired(err) || err.Error() != "too old resource version: 5 (6)" {
			t.Errorf("since 5: %v", err)
		}
		if got := f.events(f.watch(resource.WatchOptions{Since: 6}), 3); !slices.Equal(got, []string{"~x@7", "~x@8", "~x@9"}) {
			t.Errorf("since 6: %v", got)
		}
		// The last ones are kept however old they are.
		time.Sleep(time.Hour)
		if got := f.events(f.watch(resource.WatchOptions{Since: 7}), 2); !slices.Equal(got, []string{"~x@8", "~x@9"}) {
			t.Errorf("since 7: %v", got)
		}
		if _, err := f.store.Watch(t.Context(), resource.WatchOptions{Since: 6}); !apierrors.IsResourceExpired(err) {
			t.Errorf("since 6 after an hour: %v", err)
		}
	})
}

// The histories of all resources are bounded in bytes together.
func TestHistoryIsBoundedInBytes(t *testing.T) {
	f := fake(t, watchcache.Config{History: watchcache.History{MaxBytes: 50_000}})
	f.feed.reset(1)
	other := f.cache.Store(others)
	big := strings.Repeat("x", 1000)
	rev := int64(1)
	put := func(info *resource.Info, n int) (first int64) {
		first = rev
		for range n {
			rev++
			f.feed.putIn(info, thing("x", rev, "k", big))
		}
		return first
	}
	expired := func(what string, s resource.Store, since int64) {
		t.Helper()
		w, err := s.Watch(t.Context(), resource.WatchOptions{Since: since})
		if err == nil {
			w.Close()
		}
		if !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: since %d: %v", what, since, err)
		}
	}
	put(things, 100)
	expired("more than the bound", f.store, rev-50)
	f.events(f.watch(resource.WatchOptions{Since: rev - 20}), 20)
	// The bound is for both together: the larger history is cut.
	few := put(others, 10)
	all := rev
	put(things, 100)
	expired("more than the bound for two", f.store, all)
	expired("what was there before is counted", f.store, rev-25)
	w, err := other.Watch(t.Context(), resource.WatchOptions{Since: few})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f.events(w, 10)
}

// Old changes are bounded in bytes, even below MinEvents.
func TestAgedHistoryIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.reset(1)
		big := strings.Repeat("x", 100<<10)
		for rev := int64(2); rev <= 52; rev++ {
			f.feed.put(thing("x", rev, "k", big))
		}
		f.events(f.watch(resource.WatchOptions{Since: 2}), 50)
		time.Sleep(2 * time.Minute)
		if _, err := f.store.Watch(t.Context(), resource.WatchOptions{Since: 40}); !apierrors.IsResourceExpired(err) {
			t.Errorf("more than a megabyte is kept: %v", err)
		}
		f.events(f.watch(resource.WatchOptions{Since: 45}), 7)
	})
}

// After a reset of the feed, watches continue with the difference of the states.
func TestReset(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.feed.reset(5, thing("a", 1), thing("b", 2, "k", "v"), thing("c", 3, "k", "v"), thing("e", 4))
	all := f.watch(resource.WatchOptions{Since: 5})
	some := f.watch(resource.WatchOptions{Since: 5, Selector: selector(t, "k=v")})
	again := thing("e", 7)
	again.UID = "another"
	f.feed.reset(20, thing("a", 1), thing("b", 8), thing("d", 6, "k", "v"), again)
	if got, want := f.events(all, 5), []string{"-c@5", "-e@5", "+d@6", "+e@7", "~b@8"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := f.events(some, 3), []string{"-b@5", "-c@5", "+d@6"}; !slices.Equal(got, want) {
		t.Errorf("selected: got %v, want %v", got, want)
	}
	// An object may have existed at 10: a watch can start at the new state only.
	if _, err := f.store.Watch(t.Context(), resource.WatchOptions{Since: 10}); !apierrors.IsResourceExpired(err) {
		t.Errorf("since an unknown revision: %v", err)
	}
	w := f.watch(resource.WatchOptions{Since: 20})
	f.feed.put(thing("a", 21))
	for _, w := range []resource.Watcher{w, all} {
		if got := f.events(w, 1); got[0] != "~a@21" {
			t.Errorf("after the reset: %v", got)
		}
	}
	if got, _ := f.names(resource.ListOptions{}); got != "abde" {
		t.Errorf("listed %q", got)
	}
}

// Watches end when the storage was restored to an earlier state.
func TestStorageSetBack(t *testing.T) {
	for name, reset := range map[string]func(f *faked){
		"revision":    func(f *faked) { f.feed.reset(3, thing("x", 2)) },
		"other state": func(f *faked) { f.feed.reset(9, thing("x", 3)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := fake(t, watchcache.Config{})
			f.feed.reset(5, thing("x", 5))
			w := f.watch(resource.WatchOptions{Since: 5})
			parked := make(chan error)
			go func() { _, err := w.Next(t.Context()); parked <- err }()
			behind := f.watch(resource.WatchOptions{Since: 5})
			reset(f)
			if err := <-parked; !apierrors.IsResourceExpired(err) {
				t.Errorf("parked watcher: %v", err)
			}
			if err := f.ended(behind); !apierrors.IsResourceExpired(err) {
				t.Errorf("watcher: %v", err)
			}
			if got, l := f.names(resource.ListOptions{}); got != "x" || l.Revision != f.feed.current.Load() {
				t.Errorf("listed %q at %d", got, l.Revision)
			}
		})
	}
}

// A watch has a bookmark every minute, and one shortly before its deadline.
func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.answer.Store(true)
		f.feed.reset(5)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		start := time.Now()
		w, err := f.store.Watch(ctx, resource.WatchOptions{Since: 5, Bookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		quiet, err := f.store.Watch(ctx, resource.WatchOptions{Since: 5})
		if err != nil {
			t.Fatal(err)
		}
		f.feed.current.Store(8) // elsewhere in the storage
		if got := f.events(w, 1); got[0] != "bookmark@5" && got[0] != "bookmark@8" {
			t.Errorf("got %v", got)
		}
		if d := time.Since(start); d > time.Minute || d < 50*time.Second {
			t.Errorf("first bookmark after %v", d)
		}
		// The watch ends at 100 s: it has a bookmark shortly before, without a change.
		if got := f.events(w, 1); got[0] != "bookmark@8" || time.Since(start) != 98*time.Second {
			t.Errorf("got %v after %v", got, time.Since(start))
		}
		for _, w := range []resource.Watcher{w, quiet} {
			if _, err := w.Next(t.Context()); !errors.Is(err, io.EOF) || time.Since(start) != 100*time.Second {
				t.Errorf("at the end: %v after %v", err, time.Since(start))
			}
		}
	})
}

// Watches end in good order with the cache.
func TestWatchesEndWithTheCache(t *testing.T) {
	feed := newFakeFeed()
	c := watchcache.New(watchcache.Config{Feed: feed, Store: func(info *resource.Info) resource.Store { return &noStore{info: info} }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	feed.reset(5)
	w, err := c.Store(things).Watch(t.Context(), resource.WatchOptions{Since: 5})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { _, err := w.Next(t.Context()); ended <- err }()
	cancel()
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	<-done
}

// Watches of a resource that is forgotten receive what they have not read, and end; the resource begins
// anew with its next store.
func TestWatchesOfAForgottenResource(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.feed.reset(1)
	parked, behind := f.watch(resource.WatchOptions{Since: 1}), f.watch(resource.WatchOptions{Since: 1})
	f.feed.put(thing("x", 2))
	if got := f.events(parked, 1); got[0] != "+x@2" {
		t.Fatalf("got %v", got)
	}
	asleep, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := parked.Next(asleep); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("nothing happened, got %v", err)
	}
	f.feed.remove("x", 3)
	f.cache.Forget(things)
	if got := f.events(parked, 1); got[0] != "-x@3" {
		t.Errorf("got %v", got)
	}
	if got := f.events(behind, 2); !slices.Equal(got, []string{"+x@2", "-x@3"}) {
		t.Errorf("got %v", got)
	}
	for _, w := range []resource.Watcher{parked, behind} {
		if err := f.ended(w); !errors.Is(err, io.EOF) {
			t.Errorf("it ended with %v", err)
		}
	}
	again := f.cache.Store(things)
	if _, err := again.Watch(t.Context(), resource.WatchOptions{Since: 2}); !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch since before: %v", err)
	}
	w, err := again.Watch(t.Context(), resource.WatchOptions{Since: 3})
	if err != nil {
		t.Fatal(err)
	}
	f.feed.put(thing("y", 4))
	if got := f.events(w, 1); got[0] != "+y@4" {
		t.Errorf("got %v", got)
	}
}

// Watchers of every scope receive exactly the changes in it.
func TestScopes(t *testing.T) { synctest.Test(t, testScopes) }

func testScopes(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.feed.reset(1)
	watches := map[string]resource.WatchOptions{
		"all":                 {},
		"namespace":           {Namespace: "a"},
		"other namespace":     {Namespace: "b"},
		"name":                {Namespace: "a", Selector: byName("x")},
		"name anywhere":       {Selector: byName("x")},
		"other name anywhere": {Selector: byName("z")},
	}
	want := map[string][]string{
		"all": {"+x@2", "+y@3", "-x@4", "+end@5"}, "namespace": {"+x@2", "+y@3", "-x@4", "+end@5"},
		"name": {"+x@2", "-x@4"}, "name anywhere": {"+x@2", "-x@4"},
	}
	got := map[string]chan string{}
	for name, opts := range watches {
		w := f.watch(opts)
		ch := make(chan string, 10)
		got[name] = ch
		go func() {
			for {
				events, err := w.Next(t.Context())
				if err != nil {
					close(ch)
					return
				}
				for _, e := range events {
					ch <- text(t, e)
				}
			}
		}()
		t.Cleanup(func() { w.Close() })
	}
	synctest.Wait() // all are parked
	for _, change := range []func(){
		func() { f.feed.put(thing("x", 2)) },
		func() { f.feed.put(thing("y", 3)) },
		func() { f.feed.remove("x", 4) },
		func() { f.feed.put(thing("end", 5)) },
	} {
		change()
		synctest.Wait()
	}
	for name, ch := range got {
		var events []string
		for len(ch) > 0 {
			events = append(events, <-ch)
		}
		if !slices.Equal(events, want[name]) {
			t.Errorf("%s: got %v, want %v", name, events, want[name])
		}
	}
}
