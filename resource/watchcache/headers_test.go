package watchcache_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"portico/internal/testing/await"
	"portico/resource"
	"portico/resource/watchcache"
)

// Headers sends the headers of all resources, then those of changes, and all of them again
// after the storage was read anew.
func TestHeaders(t *testing.T) {
	t.Parallel()
	f := fake(t, watchcache.Config{})
	f.feed.reset(5, thing("a", 3))
	ctx, cancel := context.WithCancel(t.Context())
	got, done := make(chan string, 100), make(chan error, 1)
	go func() {
		done <- f.cache.Headers(ctx, func(events []watchcache.HeaderEvent) error {
			for _, e := range events {
				if e.Type == resource.Synced {
					got <- "synced"
				} else {
					got <- fmt.Sprint(e.Type, " ", e.Header.Name)
				}
			}
			return nil
		})
	}()
	expect := func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case g := <-got:
				if g != w {
					t.Errorf("got %s, want %s", g, w)
				}
			case <-time.After(await.Patience()):
				t.Fatalf("%s does not come", w)
			}
		}
	}
	added, modified, deleted := resource.Added, resource.Modified, resource.Deleted
	expect(fmt.Sprint(added, " a"), "synced")
	f.feed.put(thing("b", 6))
	f.feed.remove("a", 7)
	expect(fmt.Sprint(modified, " b"), fmt.Sprint(deleted, " a"))
	f.feed.reset(9, thing("b", 6), thing("c", 8))
	expect(fmt.Sprint(added, " b"), fmt.Sprint(added, " c"), "synced")
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("Headers returns %v", err)
	}
	if len(got) > 0 {
		t.Error("there are more events")
	}
}
