package inspect

import (
	"cmp"
	"math"
	"slices"
	"testing"
)

const exposition = `# TYPE portico_upstream_request_duration_seconds histogram
portico_upstream_request_duration_seconds_bucket{apiservice="v1.",endpoint="a",le="0.1"} 90
portico_upstream_request_duration_seconds_bucket{apiservice="v1.",endpoint="a",le="1"} 100
portico_upstream_request_duration_seconds_bucket{apiservice="v1.",endpoint="a",le="+Inf"} 100
portico_upstream_request_duration_seconds_sum{apiservice="v1.",endpoint="a"} 10
portico_upstream_request_duration_seconds_count{apiservice="v1.",endpoint="a"} 100
portico_upstream_request_duration_seconds_bucket{apiservice="v1.",endpoint="b",le="0.1"} 90
portico_upstream_request_duration_seconds_bucket{apiservice="v1.",endpoint="b",le="1"} 100
portico_upstream_request_duration_seconds_bucket{apiservice="v1.",endpoint="b",le="+Inf"} 100
portico_upstream_request_duration_seconds_sum{apiservice="v1.",endpoint="b"} 10
portico_upstream_request_duration_seconds_count{apiservice="v1.",endpoint="b"} 100
portico_upstream_request_duration_seconds_bucket{apiservice="v1.slow",endpoint="c",le="0.1"} 0
portico_upstream_request_duration_seconds_bucket{apiservice="v1.slow",endpoint="c",le="1"} 0
portico_upstream_request_duration_seconds_bucket{apiservice="v1.slow",endpoint="c",le="+Inf"} 4
portico_upstream_request_duration_seconds_count{apiservice="v1.slow",endpoint="c"} 4
# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{component="apiserver",group="g",version="v1",verb="GET",le="0.1"} 1
apiserver_request_duration_seconds_bucket{component="apiserver",group="g",version="v1",verb="GET",le="+Inf"} 1
apiserver_request_duration_seconds_count{component="apiserver",group="g",version="v1",verb="GET"} 1
apiserver_request_duration_seconds_bucket{component="apiserver",group="g",version="v1",verb="WATCH",le="+Inf"} 50
apiserver_request_duration_seconds_count{component="apiserver",group="g",version="v1",verb="WATCH"} 50
# TYPE refused_total counter
refused_total{code="429",user="a"} 2
refused_total{code="429",user="b"} 3
refused_total{code="503",user="a"} 0
`

// Loads add the endpoints of a server, leave out watches, and estimate as Prometheus does; Sum adds
// several processes.
func TestMetrics(t *testing.T) {
	t.Parallel()
	m := Metrics{}
	if err := m.Add([]byte(exposition)); err != nil {
		t.Fatal(err)
	}
	loads := m.Loads()
	slices.SortFunc(loads, func(a, b Load) int { return cmp.Compare(a.Name, b.Name) })
	// 198 of 200: 180 are within 0.1 s, and 20 between that and 1 s.
	want := []Load{{"v1.", 200, 0.1 + 0.9*18/20}, {"v1.g", 1, 0.099}, {"v1.slow", 4, 1}}
	if !slices.EqualFunc(loads, want, func(a, b Load) bool {
		return a.Name == b.Name && a.Requests == b.Requests && math.Abs(a.P99-b.P99) < 1e-9
	}) {
		t.Errorf("loads are %v, want %v", loads, want)
	}
	if err := m.Add([]byte("# TYPE refused_total counter\nrefused_total{code=\"429\"} 1\n")); err != nil {
		t.Fatal(err)
	}
	if sums := m.Sum("refused_total", "code"); len(sums) != 1 || sums["429"] != 6 {
		t.Errorf("sums are %v", sums)
	}
	if err := m.Add([]byte("no metrics")); err == nil {
		t.Error("text that is no metrics is read")
	}
}
