package etcd

import (
	"fmt"
	"strings"
	"testing"

	"portico/internal/testing/storetest"
	"portico/resource"
)

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
