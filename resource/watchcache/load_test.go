package watchcache_test

import (
	"errors"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/watchcache"
)

// Resources are served while another one is loaded, of which single objects come from the store beneath, and lists and watches
// are 429. It is served, with the changes since, once it is loaded.
func TestLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		large := f.cache.Store(others)
		in := func(o *resource.Object) resource.Change {
			return resource.Change{Path: others.ObjectPath(o.Key()), Object: o, Revision: o.Revision}
		}
		x := thing("x", 3)
		f.feed.current.Store(5)
		partial := func(to func(s resource.PartialSink)) {
			f.feed.deliver(func(s resource.FeedSink) { to(s.(resource.PartialSink)) })
		}
		partial(func(s resource.PartialSink) {
			s.ResetPart(5, []resource.Change{{Path: things.ObjectPath(x.Key()), Object: x, Revision: 3}, in(thing("a", 1))}, []string{"others/"})
		})
		if f.cache.Ready() {
			t.Error("the cache is ready without a resource")
		}
		w, err := f.store.Watch(t.Context(), resource.WatchOptions{InitialEvents: true})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		f.feed.put(thing("y", 6))
		if got := f.events(w, 3); got[0] != "+x@3" || got[2] != "+y@6" {
			t.Errorf("events of a loaded resource: %v", got)
		}
		if _, err := large.Get(t.Context(), resource.Key{Namespace: "a", Name: "a"}, resource.At{}); !errors.Is(err, errBeneath) {
			t.Errorf("get of an object that is loaded: %v", err)
		}
		if _, err := large.List(t.Context(), resource.ListOptions{}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("list of a resource that is loaded: %v", err)
		}
		if _, err := large.Watch(t.Context(), resource.WatchOptions{Since: 5}); !apierrors.IsTooManyRequests(err) {
			t.Errorf("watch of a resource that is loaded: %v", err)
		}
		got := make(chan *resource.List, 1)
		go func() {
			l, _ := large.List(t.Context(), resource.ListOptions{At: resource.At{Freshness: resource.Any}})
			got <- l
		}()
		synctest.Wait()
		partial(func(s resource.PartialSink) {
			s.Load("others/", []resource.Change{in(thing("b", 2)), in(thing("c", 4))}, false)
			s.Apply([]resource.Change{in(thing("b", 6)), {Path: "others/a/c", Revision: 6}})
			s.Load("others/", nil, true)
		})
		if l := <-got; l == nil || len(l.Items) != 2 || l.Items[0].Name != "a" || l.Items[1].Revision != 6 || !f.cache.Ready() {
			t.Errorf("loaded: %+v, ready: %t", l, f.cache.Ready())
		}
		if _, err := large.Watch(t.Context(), resource.WatchOptions{Since: 5}); !apierrors.IsResourceExpired(err) {
			t.Errorf("a watch from before the resource was loaded: %v", err)
		}
		later, err := large.Watch(t.Context(), resource.WatchOptions{Since: 6})
		if err != nil {
			t.Fatal(err)
		}
		defer later.Close()
		f.feed.putIn(others, thing("d", 7))
		if got := f.events(later, 1); got[0] != "+d@7" {
			t.Errorf("events after the resource was loaded: %v", got)
		}
	})
}
