package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/storetest"
	"portico/resource"
)

func TestJoinRanges(t *testing.T) {
	r := func(pairs ...string) (out []keyRange) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, keyRange{pairs[i], pairs[i+1]})
		}
		return out
	}
	for _, tt := range []struct{ in, want []keyRange }{
		{r("a", "b"), r("a", "b")},
		{r("c", "d", "a", "b"), r("a", "b", "c", "d")},
		{r("b", "c", "a", "b"), r("a", "c")},
		{r("a", "z", "b", "c", "d", "e"), r("a", "z")},
		{r("a", "c", "b", "d", "e", "f"), r("a", "d", "e", "f")},
	} {
		if got := joinRanges(slices.Clone(tt.in)); !slices.Equal(got, tt.want) {
			t.Errorf("joinRanges(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestKeysInRanges(t *testing.T) {
	t.Parallel()
	f := &feed{ranges: []keyRange{{"b", "c"}, {"d", "e"}}}
	for key, want := range map[string]bool{"a": false, "b": true, "b1": true, "c": false, "cz": false, "d": true, "dz": true, "e": false, "f": false} {
		if got := f.has(key); got != want {
			t.Errorf("%q: %t", key, got)
		}
	}
}

func TestCurrentJoinsNoReadInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := 0
		next := make(chan int64)
		s := newSharedRevision(t.Context(), func(context.Context) (int64, error) {
			began++
			return <-next, nil
		})
		results := make(chan int64, 10)
		call := func() {
			rev, err := s.current(t.Context())
			if err != nil {
				t.Error(err)
			}
			results <- rev
		}
		go call()
		synctest.Wait() // the first read has begun
		for range 5 {
			go call()
		}
		synctest.Wait()
		next <- 1
		synctest.Wait()
		if got := <-results; got != 1 || len(results) != 0 {
			t.Errorf("first read gave %d to the first caller and something to %d others", got, len(results))
		}
		next <- 2
		synctest.Wait()
		for range 5 {
			if got := <-results; got != 2 {
				t.Errorf("a later caller got %d", got)
			}
		}
		if began != 2 {
			t.Errorf("%d reads for 6 callers", began)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.current(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("ended caller got %v", err)
		}
		next <- 3
	})
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

// Without a feed only the latest writes are kept, and none is taken for another.
func TestRecentWritesAreBounded(t *testing.T) {
	var r recentWrites
	for i := range 3 * recentObjects {
		o := setting(t, fmt.Sprint("x", i), "1")
		r.begin(fmt.Sprint("k", i), o, o.Stored())
	}
	if len(r.byKey) != recentObjects {
		t.Errorf("%d writes are remembered", len(r.byKey))
	}
	last := setting(t, fmt.Sprint("x", 3*recentObjects-1), "1")
	key := fmt.Appendf(nil, "k%d", 3*recentObjects-1)
	if r.take(key, []byte("{}")) != nil || r.take([]byte("k0"), last.Stored()) != nil {
		t.Error("a write was taken for another")
	}
	w := r.take(key, last.Stored())
	if w == nil || r.take(key, last.Stored()) != nil {
		t.Fatal("the last write is not remembered, or twice")
	}
	if five, six := w.at(5), w.at(6); five.Revision != 5 || six.Revision != 6 || six != w.at(6) {
		t.Errorf("%v, %v", five, six)
	}
}
