package handlers

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"

	"portico/resource/rest/resttest"
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
			b := newBench(t, func(c *Config, _ *bench) { c.Metrics = registry })
			b.put(b.secrets, resttest.Secret("a"))
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
