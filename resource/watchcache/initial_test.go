package watchcache_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/watchcache"
)

// A client that stops reading initial events loses its snapshot; a slow one gets all of them.
func TestInitialSnapshotIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.reset(3000, manyThings(2000)...)
		stuck := f.watch(resource.WatchOptions{InitialEvents: true})
		if got := f.events(stuck, 1); got[0] != "+x0000@1" {
			t.Fatal(got)
		}
		slow := f.watch(resource.WatchOptions{InitialEvents: true})
		read := 0
		for read < 2001 {
			events, err := slow.Next(t.Context())
			if err != nil {
				t.Fatalf("a slow reader, after %d: %v", read, err)
			}
			read += len(events)
			time.Sleep(100 * time.Second)
		}
		if err := f.ended(stuck); !apierrors.IsResourceExpired(err) {
			t.Errorf("a reader that stopped: %v", err)
		}
	})
}

// Slow clients do not hold everything that is replaced meanwhile, neither with a list in pages
// nor with initial events.
func TestOldSnapshotsAreBoundedInBytes(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.feed.reset(5000, manyThings(4000)...)
	_, page := f.names(resource.ListOptions{Limit: 1})
	w := f.watch(resource.WatchOptions{InitialEvents: true})
	next := func() (served, going bool) {
		_, err := f.store.List(t.Context(), resource.ListOptions{Limit: 1, Continue: page.Continue})
		_, ended := w.Next(t.Context())
		return err == nil, ended == nil
	}
	big := strings.Repeat("x", 8<<20)
	for i := range 11 {
		switch served, going := next(); {
		case i < 3 && !(served && going):
			t.Fatalf("after %d replaced states of 8 MiB: list %t, watch %t", i, served, going)
		case i == 10 && (served || going):
			t.Errorf("after %d replaced states of 8 MiB: list %t, watch %t", i, served, going)
		}
		f.feed.put(thing("x0000", int64(5001+i), "k", big))
	}
}

// Batches of large events are small.
func TestLargeEventsComeInSmallBatches(t *testing.T) {
	f := fake(t, watchcache.Config{})
	big := strings.Repeat("x", 400<<10)
	var objects []*resource.Object
	for i := range 10 {
		objects = append(objects, thing(fmt.Sprintf("x%d", i), int64(i+1), "k", big))
	}
	f.feed.reset(100, objects...)
	w := f.watch(resource.WatchOptions{InitialEvents: true})
	for i := range 10 {
		f.feed.put(thing(fmt.Sprintf("x%d", i), int64(i+101), "k", big))
	}
	for read := 0; read < 21; {
		events, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, e := range events {
			if e.Object != nil {
				size += len(e.Object.Data)
			}
		}
		if size > 3*len(big)+3<<10 {
			t.Errorf("%d events of %d bytes at once", len(events), size)
		}
		read += len(events)
	}
}
