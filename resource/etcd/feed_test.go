package etcd

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/storetest"
	"portico/resource"
)

// A feed delivers the objects of its ranges and no others, however its ranges are given.
func TestFeedRanges(t *testing.T) {
	t.Parallel()
	c := newServer(t).client(t)
	var all []*resource.Info
	for _, name := range []string{"a", "b", "c", "d"} {
		info := storetest.Namespaced()
		info.Path = name
		all = append(all, info)
		mustCreate(t, c.Store(info), "early")
	}
	for what, tt := range map[string]struct {
		feed resource.Feed
		want string
	}{
		"everything":            {c.Feed(), "abcd"},
		"one range":             {c.Feed("b/"), "b"},
		"ranges out of order":   {c.Feed("c/", "a/"), "ac"},
		"ranges that overlap":   {c.Feed("b/", "b/a/", "b/"), "b"},
		"ranges side by side":   {c.Feed("c/", "b/"), "bc"},
		"all but two":           {c.FeedExcept("b/", "c/"), "ad"},
		"all but the first":     {c.FeedExcept("a/"), "bcd"},
		"all but the last, too": {c.FeedExcept("d/", "a/"), "bc"},
	} {
		t.Run(what, func(t *testing.T) {
			replica := follow(t, tt.feed)
			var last *resource.Object
			var stores []resource.Store
			for _, info := range all {
				made := mustCreate(t, c.Store(info), "late-"+strings.ReplaceAll(what, " ", "-"))
				if strings.Contains(tt.want, info.Path) {
					last, stores = made, append(stores, c.Store(info))
				}
			}
			waitFor(t, replica, storetest.At(last.Revision))
			replica.Compare(t.Context(), t, stores...)
		})
	}
}

// A restart of etcd does not reset a feed.
func TestFeedResumesAfterARestart(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	for _, ranges := range [][]string{nil, {"other/", "storetest.portico.dev/"}} {
		c := s.client(t)
		store := c.Store(storetest.Namespaced())
		mustCreate(t, store, "before")
		replica := follow(t, c.Feed(ranges...))
		s.Stop()
		s.start(t)
		checkResumed(t, replica, store, mustCreate(t, store, "after").Revision)
	}
}

// A feed that starts while etcd is away delivers the state once etcd is back.
func TestFeedStartsBeforeEtcd(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t)
	mustCreate(t, c.Store(storetest.Namespaced()), "x")
	s.Stop()
	replica := storetest.NewReplica()
	var running sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	running.Go(func() { _ = c.Feed().Run(ctx, replica) })
	defer running.Wait()
	defer cancel()
	s.start(t)
	waitFor(t, replica, storetest.Resets(1))
	replica.Compare(t.Context(), t, c.Store(storetest.Namespaced()))
}

// When etcd's data is replaced, as by restoring an old backup, the feed is reset, although
// the revisions are below those that it has delivered.
func TestFeedNoticesAnotherEtcd(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t)
	store := c.Store(storetest.Namespaced())
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		mustCreate(t, store, name)
	}
	f := c.Feed()
	replica := follow(t, f)
	s.Stop()
	if err := os.RemoveAll(s.DataDir); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	mustCreate(t, store, "new")
	// The delivered state is not the current one, even if its revision is higher.
	if rev, err := f.Current(t.Context()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("the current revision is %d (%v)", rev, err)
	}
	waitFor(t, replica, storetest.Resets(2))
	replica.Compare(t.Context(), t, store)
	if _, err := f.Current(t.Context()); err != nil {
		t.Error(err)
	}
}

// For small writes of its own process the feed delivers the objects of the writers; for
// others it makes new ones.
func TestWritersAndTheFeedShare(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c := s.client(t)
	cache := cached(t, c)
	st := cache.Store(storetest.Namespaced())
	sees := func(made *resource.Object) *resource.Object {
		t.Helper()
		got, err := st.Get(t.Context(), made.Key(), resource.At{})
		if err != nil || got.Revision != made.Revision || string(got.Data) != string(made.Data) {
			t.Fatalf("%v, %v", got, err)
		}
		return got
	}
	x := mustCreate(t, st, "x")
	if sees(x) != x {
		t.Error("the feed made a new object for a creation")
	}
	y, err := st.Update(t.Context(), x.Key(), func(*resource.Object) (resource.Mutation, error) {
		return resource.Mutation{Object: setting(t, "x", "2")}, nil
	})
	if err != nil || sees(y) != y {
		t.Errorf("the feed made a new object for an update: %v", err)
	}
	large := setting(t, "large", strings.Repeat("x", recentBytes))
	made, err := st.Create(t.Context(), large.Key(), large, 0)
	if err != nil || sees(made) == made {
		t.Errorf("a large object was remembered: %v", err)
	}
	other := s.client(t, func(cfg *Config) { cfg.Prefix = c.prefix })
	if made := mustCreate(t, other.Store(storetest.Namespaced()), "z"); sees(made) == made {
		t.Error("two processes share an object")
	}
}
