package handlers

import (
	"errors"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

// metric is what there is of one; what its kind has not is 0.
type metric struct {
	value, sum float64
	count      uint64
	upTo       map[float64]uint64
}

// gathered returns the only metric of a family that has that value of a label.
func gathered(t *testing.T, from prometheus.Gatherer, family, label, value string) metric {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found []metric
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if f.GetName() != family || l.GetName() != label || l.GetValue() != value {
					continue
				}
				h := m.GetHistogram()
				got := metric{value: m.GetCounter().GetValue(), sum: h.GetSampleSum(), count: h.GetSampleCount(), upTo: map[float64]uint64{}}
				for _, b := range h.GetBucket() {
					got.upTo[b.GetUpperBound()] = b.GetCumulativeCount()
				}
				found = append(found, got)
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d of %s with %s=%q", len(found), family, label, value)
	}
	return found[0]
}

// Every event that is sent is counted with its size before compression, in each
// form, and so is the time that the initial events took.
func TestWatchMetrics(t *testing.T) {
	for name, headers := range map[string][]string{
		"JSON": {"", ""}, "protobuf": {runtime.ContentTypeProtobuf, ""}, "table": {tableAccept, ""}, "packed": {"", "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			registry := prometheus.NewRegistry()
			b := newBench(t, func(c *Config) { c.Metrics = registry })
			b.put(b.secrets, secret("a"))
			resp, body := b.do("GET", inDefault+"secrets?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
				"Accept", headers[0], "Accept-Encoding", headers[1])
			if resp.StatusCode != 200 {
				t.Fatal(resp.Status, body)
			}
			if headers[1] != "" {
				body = inflate(t, body)
			}
			m := gathered(t, registry, "apiserver_watch_events_sizes", "resource", "secrets")
			if m.count != 2 || m.sum != float64(len(body)) {
				t.Errorf("%d events of %v bytes, want 2 of %d", m.count, m.sum, len(body))
			}
			if n := gathered(t, registry, "apiserver_watch_events_total", "resource", "secrets").value; n != 2 {
				t.Errorf("%v events", n)
			}
			if n := gathered(t, registry, "apiserver_watch_list_duration_seconds", "scope", "namespace").count; n != 1 {
				t.Errorf("%d lists", n)
			}
		})
	}
}

// What is shared is counted for each who is sent it, and what was not sent is
// not counted.
func TestWatchMetricsOfSharedFrames(t *testing.T) {
	registry := prometheus.NewRegistry()
	api := New(Config{Metrics: registry})
	k := secrets()
	large := secret("b")
	large.Data = map[string][]byte{"k": make([]byte, 200<<10)}
	events := []resource.Event{
		{Type: resource.Added, Object: stored(t, k, secret("a"), 1)},
		{Type: resource.Added, Object: stored(t, k, large, 2)},
	}
	var want float64
	for _, packed := range []bool{false, true} {
		s := newStream(api, &resource.Action{Version: "v1"}, &rest.Resource{Kind: k}, format{}, resource.WatchOptions{Since: 1})
		s.packed = packed
		s.send = func(frames []byte, _ []int) error {
			if packed {
				frames = []byte(inflate(t, string(frames)))
			}
			want += float64(len(frames))
			return nil
		}
		if err := s.write(events); err != nil {
			t.Fatal(err)
		}
	}
	gone := newStream(api, &resource.Action{Version: "v1"}, &rest.Resource{Kind: k}, format{}, resource.WatchOptions{Since: 1})
	gone.send = func([]byte, []int) error { return errors.New("gone") }
	if err := gone.write(events); !errors.Is(err, errGone) {
		t.Fatal(err)
	}
	m := gathered(t, registry, "apiserver_watch_events_sizes", "resource", "secrets")
	if m.sum != want || m.count != 4 {
		t.Errorf("%d events of %v bytes, want 4 of %v", m.count, m.sum, want)
	}
	for bound, n := range m.upTo {
		if n != 2 {
			t.Errorf("%d up to %v bytes, want the two small ones", n, bound)
		}
	}
}

func TestTally(t *testing.T) {
	for size, bucket := range map[int]int{1: 0, 1024: 0, 1025: 1, 2048: 1, 2049: 2, 128 << 10: 7, 128<<10 + 1: 8, 3 << 20: 8} {
		var n tally
		if n.add(size); n.counts[bucket] != 1 || n.bytes != uint64(size) {
			t.Errorf("%d bytes: %v, want bucket %d", size, n, bucket)
		}
	}
}

func TestWatchSeriesAreBounded(t *testing.T) {
	m := newWatchMetrics()
	for i := range maxWatchSeries + 100 {
		m.of(schema.GroupVersionResource{Resource: fmt.Sprint(i)})
	}
	if n := len(m.series); n != maxWatchSeries+1 {
		t.Errorf("%d series", n)
	}
}

func BenchmarkWatchCount(b *testing.B) {
	series, n := newWatchMetrics().of(schema.GroupVersionResource{}), tally{}
	b.ReportAllocs()
	for b.Loop() {
		n.add(3500)
		n.addTo(series)
	}
}
