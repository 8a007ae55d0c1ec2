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

// gathered returns the metrics of things by name.
func (f *faked) gathered() map[string]float64 {
	f.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.cache.Metrics(func() []*resource.Info { return []*resource.Info{things} }))
	families, err := registry.Gather()
	if err != nil {
		f.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			out[family.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			for _, l := range m.Label {
				want := map[string]string{"group": things.Group, "resource": things.Resource}
				if family.GetName() == "apiserver_storage_objects" {
					want["resource"] = things.GroupResource().String()
				}
				if l.GetValue() != want[l.GetName()] {
					f.Errorf("%s has %s=%q", family.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	return out
}

func (f *faked) expectMetrics(want map[string]float64) {
	f.Helper()
	got := f.gathered()
	for name, v := range want {
		if n, ok := got[name]; n != v || !ok {
			f.Errorf("%s is %v, want %v", name, n, v)
		}
	}
}

func TestMetrics(t *testing.T) {
	f := fake(t, watchcache.Config{History: watchcache.History{MinEvents: 5, MaxEvents: 5}})
	f.expectMetrics(map[string]float64{
		"apiserver_resource_objects": -1, "apiserver_storage_objects": -1, "apiserver_resource_size_estimate_bytes": -1,
	})
	const n = 1000
	var objects []*resource.Object
	size := 0
	for i := range n {
		objects = append(objects, thing(fmt.Sprintf("x%04d", i), int64(i+1)))
		size += len(objects[i].Data)
	}
	f.feed.reset(3000, objects...)
	f.expectMetrics(map[string]float64{
		"apiserver_resource_objects": n, "apiserver_storage_objects": n,
		"apiserver_watch_cache_resource_version": 3000, "apiserver_watch_cache_initializations_total": 1,
	})
	if got := f.gathered()["apiserver_resource_size_estimate_bytes"]; got < 0.9*float64(size) || got > 1.1*float64(size) {
		t.Errorf("size estimated %v, is %d", got, size)
	}
	if _, ok := f.gathered()["apiserver_terminated_watchers_total"]; ok {
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

// Reads of the latest state are counted by fallback, and those that wait are timed.
func TestReadMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fake(t, watchcache.Config{})
		f.feed.reset(5, thing("x", 5))
		f.feed.current.Store(5)
		read := func(at resource.At) {
			_, _ = f.store.Get(t.Context(), resource.Key{Namespace: "a", Name: "x"}, at)
		}
		read(resource.At{Freshness: resource.Any})
		if got := f.readCounts(); len(got) != 0 {
			t.Errorf("without a read of the latest state: %v", got)
		}
		read(resource.At{})
		_, _ = f.store.List(t.Context(), resource.ListOptions{})
		f.feed.current.Store(6) // which the cache never reaches
		read(resource.At{})
		_, _ = f.store.List(t.Context(), resource.ListOptions{})
		read(resource.At{Freshness: resource.NotOlderThan, Revision: 9})
		got := f.readCounts()
		for name, want := range map[string]float64{"true,false": 2, "false,true": 2, "waits": 3, "waited": 9} {
			if got[name] != want {
				t.Errorf("%s: %v, want %v", name, got[name], want)
			}
		}
	})
}

// readCounts returns the consistent reads by success and fallback, the number of reads that
// waited, and their seconds.
func (f *faked) readCounts() map[string]float64 {
	f.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.cache.Metrics(func() []*resource.Info { return nil }))
	families, err := registry.Gather()
	if err != nil {
		f.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["group"] != things.Group || labels["resource"] != things.Resource {
				f.Errorf("%s has the labels %v", family.GetName(), labels)
			}
			switch family.GetName() {
			case "apiserver_watch_cache_consistent_read_total":
				out[labels["success"]+","+labels["fallback"]] = m.GetCounter().GetValue()
			case "apiserver_watch_cache_read_wait_seconds":
				out["waits"], out["waited"] = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
			default:
				f.Errorf("%s is shown", family.GetName())
			}
		}
	}
	return out
}
