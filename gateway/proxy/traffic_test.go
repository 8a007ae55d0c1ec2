package proxy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func registered(t *testing.T, c prometheus.Collector) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		t.Fatal(err)
	}
	return registry
}

// Requests are counted by APIService, server, endpoint, verb and class of code, and the
// series are removed with their route or endpoint.
func TestTraffic(t *testing.T) {
	all := NewTraffic()
	registry := registered(t, all)
	if got := gathered(t, registry); len(got) != 0 {
		t.Errorf("nothing was counted, and there is %v", got)
	}
	core := all.route(routeName{"v1.", "core"})
	core.endpoint("a").count(sent{verb: "LIST", code: 200, header: time.Millisecond, whole: time.Millisecond})
	core.endpoint("a").count(sent{verb: "LIST", code: 204})
	core.endpoint("b").count(sent{verb: "GET"})
	core.endpoint("b").count(sent{verb: "WATCH", code: 200, long: true})
	core.endpoint("b").count(sent{verb: "other", code: 799})
	crd := all.route(routeName{"v1.g", "crd"})
	crd.endpoint("a").count(sent{verb: "GET", code: 500})
	got := gathered(t, registry)
	for key, want := range map[string]float64{
		"portico_upstream_requests_total{apiservice=v1.,backend=core,code=2xx,endpoint=a,verb=LIST}":  2,
		"portico_upstream_requests_total{apiservice=v1.,backend=core,code=none,endpoint=b,verb=GET}":  1,
		"portico_upstream_requests_total{apiservice=v1.,backend=core,code=2xx,endpoint=b,verb=WATCH}": 1,
		"portico_upstream_requests_total{apiservice=v1.,backend=core,code=5xx,endpoint=b,verb=other}": 1,
		"portico_upstream_requests_total{apiservice=v1.g,backend=crd,code=5xx,endpoint=a,verb=GET}":   1,
		"portico_upstream_response_header_seconds{apiservice=v1.,backend=core,endpoint=a}":            2,
		"portico_upstream_response_header_seconds{apiservice=v1.,backend=core,endpoint=b}":            2,
		"portico_upstream_request_duration_seconds{apiservice=v1.,backend=core,endpoint=b}":           2,
		"portico_gateway_request_overhead_seconds{apiservice=v1.,backend=core,endpoint=a}":            2,
	} {
		if got[key] != want {
			t.Errorf("%s: got %v, want %v", key, got[key], want)
		}
	}

	// The series of a removed route or endpoint go, although a request still counts.
	late := core.endpoint("a")
	all.keep(func(name routeName) bool { return name.backend == "core" }, func(routeName) []string { return []string{"b"} })
	late.count(sent{verb: "GET", code: 200})
	for key := range gathered(t, registry) {
		if !strings.Contains(key, "backend=core") || !strings.Contains(key, "endpoint=b") {
			t.Errorf("there still is %s", key)
		}
	}
	if crd.endpoint("c") != all.other {
		t.Error("a request that began before its APIService went brings the counters back")
	}
	if all.pairs != 1 {
		t.Errorf("%d pairs are counted", all.pairs)
	}
	// A route that is added again has new ones.
	all.route(routeName{"v1.g", "crd"}).endpoint("a").count(sent{verb: "GET", code: 200})
	if got := gathered(t, registry)["portico_upstream_requests_total{apiservice=v1.g,backend=crd,code=2xx,endpoint=a,verb=GET}"]; got != 1 {
		t.Errorf("counted %v", got)
	}
}

// The number of APIServices and endpoints with series of their own is bounded.
func TestTrafficBound(t *testing.T) {
	all := NewTraffic()
	for i := range maxTraffic + 10 {
		all.route(routeName{fmt.Sprint("v", i%50, ".g"), "b"}).endpoint(fmt.Sprint("https://", i)).count(sent{verb: "GET", code: 200})
	}
	registry := registered(t, all)
	got := gathered(t, registry)
	if n := got["portico_upstream_requests_total{apiservice=other,backend=other,code=2xx,endpoint=other,verb=GET}"]; n != 10 {
		t.Errorf("%v under other names; there are %v", n, slices.Collect(maps.Keys(got))[:3])
	}
	all.keep(func(routeName) bool { return false }, nil)
	if e := all.route(routeName{"v1.g", "b"}).endpoint("a"); e == all.other {
		t.Error("there is room, and it is not used")
	}
}
