package etcd

import (
	"context"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/internal/testing/await"
	"portico/internal/testing/storetest"
	"portico/resource"
)

// paged records the pages of ranges. Reads of the revision are not pages.
type paged struct {
	clientv3.KV
	before func(page int) // called before each
	bytes  []int          // of each page's values
}

func (p *paged) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if op := clientv3.OpGet(key, opts...); len(op.RangeBytes()) == 0 {
		return p.KV.Get(ctx, key, opts...)
	}
	p.before(len(p.bytes))
	resp, err := p.KV.Get(ctx, key, opts...)
	size := 0
	if err == nil {
		for _, kv := range resp.Kvs {
			size += len(kv.Value)
		}
	}
	p.bytes = append(p.bytes, size)
	return resp, err
}

// A feed reads its range in pages at one revision. If that is compacted meanwhile, it starts
// again, and its sink never receives a mixture.
func TestCompactionWhileAFeedStarts(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	c, other := s.client(t, under("/one")), s.client(t, under("/one"))
	store := other.Store(storetest.Namespaced())
	fill(t, store, firstChunk+50, 1)
	pages := &paged{KV: c.etcd.KV, before: func(page int) {
		if page != 1 {
			return
		}
		for _, name := range []string{"x0000", fmt.Sprintf("x%04d", firstChunk+49)} {
			if _, err := store.Update(t.Context(), resource.Key{Namespace: "a", Name: name}, plusOne(t, name)); err != nil {
				t.Error(err)
			}
		}
		compact(t, other, mustCreate(t, store, "y").Revision)
	}}
	c.etcd.KV = pages
	replica := follow(t, c.Feed())
	replica.Compare(t.Context(), t, store)
	if err := replica.Wait(ended(t), storetest.Resets(2)); err == nil {
		t.Error("the sink was reset twice")
	}
	if len(pages.bytes) != 4 {
		t.Errorf("%d pages were read, want 2 that end in a compaction and 2 more", len(pages.bytes))
	}
}

// Pages are bounded in bytes, however large the values are.
func TestPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	const size, objects = 120 << 10, firstChunk + 3*pageBytes/(120<<10)
	s := newServer(t)
	c := s.client(t)
	store := c.Store(storetest.Namespaced())
	fill(t, store, objects, size)
	pages := &paged{KV: c.etcd.KV, before: func(int) {}}
	c.etcd.KV = pages
	follow(t, c.Feed())
	fed := len(pages.bytes)
	l, err := store.List(t.Context(), resource.ListOptions{})
	if err != nil || len(l.Items) != objects {
		t.Fatalf("list: %d items, %v", len(l.Items), err)
	}
	for i, n := range pages.bytes {
		if i != 0 && i != fed && n > pageBytes {
			t.Errorf("page %d holds %d bytes", i, n)
		}
	}
	if fed < 4 {
		t.Errorf("the feed read %d pages", fed)
	}
}

// While etcd is unreachable, objects are created, changed and deleted, and the history is
// compacted. Running watches receive the difference; a watch from an earlier revision gets
// Expired.
func TestWatchersOutliveCompaction(t *testing.T) {
	t.Parallel()
	for _, ranges := range [][]string{nil, {"another/", "storetest.portico.dev/"}} {
		t.Run(fmt.Sprint(len(ranges), " ranges"), func(t *testing.T) {
			s := newServer(t)
			c, beside := s.client(t, under("/one")), s.beside(t, under("/one"))
			store, direct := cached(t, c, ranges...).Store(storetest.Namespaced()), beside.Store(storetest.Namespaced())
			var old *resource.Object
			for _, name := range []string{"changes", "goes", "stays"} {
				old = mustCreate(t, store, name)
			}
			w, err := store.Watch(t.Context(), resource.WatchOptions{InitialEvents: true})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			read(t, w, "+changes=1 +goes=1 +stays=1 synced")

			s.Cut()
			for range 3 {
				if _, err := direct.Update(t.Context(), resource.Key{Namespace: "a", Name: "changes"}, plusOne(t, "changes")); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := direct.Delete(t.Context(), resource.Key{Namespace: "a", Name: "goes"}, nil); err != nil {
				t.Fatal(err)
			}
			short := mustCreate(t, direct, "comes-and-goes")
			mustCreate(t, direct, "comes")
			gone, err := direct.Delete(t.Context(), short.Key(), nil)
			if err != nil {
				t.Fatal(err)
			}
			compact(t, beside, gone.Revision)
			s.Mend()

			// Deletions come first: a watch that ends now and resumes elsewhere has them.
			read(t, w, "-goes=1 ~changes=4 +comes=1")
			mustCreate(t, store, "later")
			read(t, w, "+later=1")
			late, err := store.Watch(t.Context(), resource.WatchOptions{Since: old.Revision})
			if err == nil {
				_, err = late.Next(t.Context())
				late.Close()
			}
			if !apierrors.IsResourceExpired(err) {
				t.Errorf("a watch from before: %v", err)
			}
		})
	}
}

// read reads as many events as want has, and compares.
func read(t *testing.T, w resource.Watcher, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience())
	defer cancel()
	var got []string
	for len(got) < len(strings.Fields(want)) {
		events, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		for _, e := range events {
			switch e.Type {
			case resource.Synced:
				got = append(got, "synced")
			case resource.Bookmark:
			default:
				got = append(got, map[resource.EventType]string{resource.Added: "+", resource.Modified: "~", resource.Deleted: "-"}[e.Type]+
					e.Object.Name+fmt.Sprint("=", number(t, e.Object)))
			}
		}
	}
	if s := strings.Join(got, " "); s != want {
		t.Errorf("events %s\nwant   %s", s, want)
	}
}
