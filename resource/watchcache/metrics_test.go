package watchcache_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/watchcache"
)

// gathered returns the metrics of the resources shown, all of things, by name and the values
// of labels other than group and resource. For a histogram, name and name,sum.
func (f *faked) gathered(shown ...*resource.Info) map[string]float64 {
	f.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.cache.Metrics(func() []*resource.Info { return shown }))
	families, err := registry.Gather()
	if err != nil {
		f.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			name := family.GetName()
			want := map[string]string{"group": things.Group, "resource": things.Resource}
			if name == "apiserver_storage_objects" {
				want["resource"] = things.GroupResource().String()
			}
			for _, l := range m.Label {
				if v, ok := want[l.GetName()]; !ok {
					name += "," + l.GetValue()
				} else if l.GetValue() != v {
					f.Errorf("%s has %s=%q, want %q", name, l.GetName(), l.GetValue(), v)
				}
			}
			out[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if m.Histogram != nil {
				out[name+",sum"] = m.GetHistogram().GetSampleSum()
			}
		}
	}
	return out
}

func (f *faked) expectMetrics(want map[string]float64) {
	f.Helper()
	got := f.gathered(things)
	for name, v := range want {
		if n, ok := got[name]; n != v || !ok {
			f.Errorf("%s is %v, want %v", name, n, v)
		}
	}
}

// Metrics of a resource are those of kube-apiserver's watch cache.
func TestMetrics(t *testing.T) {
	f := fake(t, watchcache.Config{History: watchcache.History{MinEvents: 5, MaxEvents: 5}})
	f.expectMetrics(map[string]float64{
		"apiserver_resource_objects": -1, "apiserver_storage_objects": -1, "apiserver_resource_size_estimate_bytes": -1,
	})
	const n = 1000
	objects, size := manyThings(n), 0
	for _, o := range objects {
		size += len(o.Data)
	}
	f.feed.reset(3000, objects...)
	f.expectMetrics(map[string]float64{
		"apiserver_resource_objects": n, "apiserver_storage_objects": n,
		"apiserver_watch_cache_resource_version": 3000, "apiserver_watch_cache_initializations_total": 1,
	})
	got := f.gathered(things)
	if estimate := got["apiserver_resource_size_estimate_bytes"]; estimate < 0.9*float64(size) || estimate > 1.1*float64(size) {
		t.Errorf("size estimated as %v, want about %d", estimate, size)
	}
	if _, ok := got["apiserver_terminated_watchers_total"]; ok {
		t.Error("watchers were terminated before there were any")
	}

	slow := f.watch(resource.WatchOptions{Since: 3000})
	for i := range 10 {
		f.feed.put(thing(fmt.Sprintf("y%d", i), int64(3001+i)))
	}
	f.feed.remove("x0000", 3011)
	if err := f.ended(slow); !apierrors.IsResourceExpired(err) {
		t.Error(err)
	}
	f.feed.reset(4000, thing("x0000", 3500))
	f.expectMetrics(map[string]float64{
		"apiserver_resource_objects": 1, "apiserver_watch_cache_resource_version": 4000, "apiserver_watch_cache_initializations_total": 2,
		"apiserver_watch_cache_events_received_total": 1021, "apiserver_watch_cache_events_dispatched_total": 1021,
		"apiserver_terminated_watchers_total": 1,
	})
}

// Reads of the latest state are counted by success and fallback, and reads that wait are
// timed.
func TestReadMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.reset(5, thing("x", 5))
		read := func(at resource.At) {
			_, _ = f.store.Get(t.Context(), resource.Key{Namespace: "a", Name: "x"}, at)
		}
		read(resource.At{Freshness: resource.Any})
		if got := f.gathered(); len(got) != 0 {
			t.Errorf("without a read of the latest state: %v", got)
		}
		read(resource.At{})
		_, _ = f.store.List(t.Context(), resource.ListOptions{})
		f.feed.current.Store(6) // which the cache never reaches
		read(resource.At{})
		_, _ = f.store.List(t.Context(), resource.ListOptions{})
		read(resource.At{Freshness: resource.NotOlderThan, Revision: 9})
		want := fmt.Sprint(map[string]float64{
			"apiserver_watch_cache_consistent_read_total,false,true": 2, "apiserver_watch_cache_consistent_read_total,true,false": 2,
			"apiserver_watch_cache_read_wait_seconds": 3, "apiserver_watch_cache_read_wait_seconds,sum": 9,
		})
		if got := fmt.Sprint(f.gathered()); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}
