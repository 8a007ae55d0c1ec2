package watchcache_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/resource"
	"portico/resource/watchcache"
)

// All pages of a list are of one snapshot, which is kept for some time.
func TestPagesOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.reset(9, thing("a", 1), thing("b", 2, "k", "v"), thing("c", 3), thing("d", 4, "k", "v"), thing("e", 5, "k", "v"))
		names, first := f.names(resource.ListOptions{Limit: 2})
		if names != "ab" || first.Continue == "" || *first.Remaining != 3 {
			t.Fatalf("first page %q, %+v", names, first)
		}
		_, selected := f.names(resource.ListOptions{Limit: 2, Selector: selector(t, "k=v")})
		if selected.Continue == "" || selected.Remaining != nil {
			t.Errorf("selected page %+v", selected)
		}
		f.feed.put(thing("c2", 10))
		f.feed.remove("d", 11)
		names, second := f.names(resource.ListOptions{Limit: 2, Continue: first.Continue})
		if names != "cd" || second.Revision != 9 || *second.Remaining != 1 {
			t.Errorf("second page %q, %+v", names, second)
		}
		if names, l := f.names(resource.ListOptions{Limit: 2, Continue: second.Continue}); names != "e" || l.Continue != "" || l.Remaining != nil {
			t.Errorf("last page %q, %+v", names, l)
		}
		if names, l := f.names(resource.ListOptions{Limit: 2, Continue: selected.Continue, Selector: selector(t, "k=v")}); names != "e" || l.Continue != "" {
			t.Errorf("last selected page %q, %+v", names, l)
		}
		if names, l := f.names(resource.ListOptions{Limit: 2, Continue: resource.EncodeContinue(-1, "a/b")}); names != "cc2" || l.Revision != 11 {
			t.Errorf("inconsistent page %q, %+v", names, l)
		}
		if names, l := f.names(resource.ListOptions{Limit: 2, At: resource.At{Freshness: resource.Any}}); names != "abcc2e" || l.Continue != "" {
			t.Errorf("any with limit: %q, %+v", names, l)
		}
		if f.beneath.calls.Load() != 0 {
			t.Error("the store beneath was read")
		}
		// Some time after its last use the snapshot is dropped.
		time.Sleep(10 * time.Minute)
		if _, err := f.store.List(t.Context(), resource.ListOptions{Limit: 2, Continue: first.Continue}); !errors.Is(err, errBeneath) {
			t.Errorf("after a while: %v", err)
		}
	})
}

// A list at an old revision is read from the store beneath, which may have compacted it, even if the objects have not
// changed since, and however often its pages are read.
func TestOldRevisionsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.reset(9, thing("a", 1), thing("b", 2), thing("c", 3))
		_, unchanged := f.names(resource.ListOptions{Limit: 1})
		for range 9 {
			f.feed.put(thing("a", f.feed.current.Load()+1))
			time.Sleep(30 * time.Second)
			if names, _ := f.names(resource.ListOptions{Limit: 1, Continue: unchanged.Continue}); names != "b" {
				t.Fatalf("got %q", names)
			}
		}
		time.Sleep(time.Minute)
		if _, err := f.store.List(t.Context(), resource.ListOptions{Limit: 1, Continue: unchanged.Continue}); !errors.Is(err, errBeneath) {
			t.Errorf("after more than five minutes: %v", err)
		}
		f.feed.put(thing("a", f.feed.current.Load()+1))
		_, now := f.names(resource.ListOptions{Limit: 1})
		time.Sleep(time.Minute)
		if names, _ := f.names(resource.ListOptions{Limit: 1, Continue: now.Continue}); names != "b" {
			t.Errorf("a newer one: got %q", names)
		}
	})
}

// Only so many snapshots are kept for lists in pages.
func TestKeptSnapshotsAreBounded(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.feed.reset(9, thing("a", 1), thing("b", 2))
	var tokens []string
	for rev := int64(10); rev < 110; rev++ {
		f.feed.put(thing(fmt.Sprint("x", rev), rev))
		_, l := f.names(resource.ListOptions{Limit: 1})
		tokens = append(tokens, l.Continue)
	}
	served := 0
	for _, token := range tokens {
		if _, err := f.store.List(t.Context(), resource.ListOptions{Limit: 1, Continue: token}); err == nil {
			served++
		}
	}
	if served < 10 || served > 40 {
		t.Errorf("%d of 100 snapshots are kept", served)
	}
}

// A list with an unreadable object fails before a part of it is read; one that may not include
// it goes to the store beneath.
func TestListsOfUnreadableObjects(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.beneath.unreadable = &apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Reason: metav1.StatusReasonStoreReadError, Message: "cannot be read"}}
	f.beneath.key = resource.Key{Namespace: "b", Name: "bad"}
	f.feed.reset(9, thing("a", 1))
	f.feed.deliver(func(s resource.FeedSink) {
		s.Apply([]resource.Change{{Path: things.ObjectPath(f.beneath.key), Revision: 10, Unreadable: f.beneath.unreadable}})
	})
	f.feed.current.Store(10)
	unreadable := errors.New("failed to read one or more things from the storage: cannot be read")
	for what, tt := range map[string]struct {
		opts resource.ListOptions
		want error
	}{
		"all":               {resource.ListOptions{}, unreadable},
		"some":              {resource.ListOptions{Selector: selector(t, "k=v")}, unreadable},
		"its namespace":     {resource.ListOptions{Namespace: "b"}, unreadable},
		"another namespace": {resource.ListOptions{Namespace: "a"}, nil},
		"another name":      {resource.ListOptions{Namespace: "b", Selector: byName("x")}, errBeneath},
		"a page":            {resource.ListOptions{Limit: 1}, errBeneath},
	} {
		if _, err := f.store.List(t.Context(), tt.opts); fmt.Sprint(err) != fmt.Sprint(tt.want) {
			t.Errorf("%s: %v, want %v", what, err, tt.want)
		} else if err != nil && tt.want != errBeneath && apierrors.ReasonForError(err) != metav1.StatusReasonStoreReadError {
			t.Errorf("%s: the reason is %s", what, apierrors.ReasonForError(err))
		}
	}
	f.beneath.unreadable = nil
	if _, err := f.store.List(t.Context(), resource.ListOptions{}); !errors.Is(err, errBeneath) {
		t.Errorf("once it can be read: %v", err)
	}
}

// An exact list comes from memory if nothing has changed between its revision and now.
func TestExact(t *testing.T) {
	f := fake(t, watchcache.Config{})
	f.feed.reset(9, thing("a", 1))
	exact := func(rev int64) resource.ListOptions {
		return resource.ListOptions{At: resource.At{Freshness: resource.Exact, Revision: rev}}
	}
	f.feed.put(thing("b", 10))
	f.feed.deliver(func(s resource.FeedSink) { s.Progress(20) })
	// Nothing of this resource has changed from 10 to 20.
	for _, rev := range []int64{10, 15, 20} {
		if names, l := f.names(exact(rev)); names != "ab" || l.Revision != rev {
			t.Errorf("at %d: %q at %d", rev, names, l.Revision)
		}
	}
	for _, rev := range []int64{9, 21} {
		if _, err := f.store.List(t.Context(), exact(rev)); !errors.Is(err, errBeneath) {
			t.Errorf("at %d: %v", rev, err)
		}
	}
}
