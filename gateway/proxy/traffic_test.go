package proxy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// trafficOf returns a Traffic with the pairs, and its series.
func trafficOf(t *testing.T, pairs ...trafficPair) (*Traffic, func() map[string]float64) {
	t.Helper()
	all, registry := NewTraffic(), prometheus.NewRegistry()
	registry.MustRegister(all.Metrics()...)
	all.keep(pairs)
	return all, func() map[string]float64 { return gathered(t, registry) }
}

// Requests are counted by APIService, server, endpoint, verb and class of code, and the
// series are removed with their route or endpoint.
func TestTraffic(t *testing.T) {
	t.Parallel()
	core, crd := &Route{Name: "v1.", Backend: "core"}, &Route{Name: "v1.g", Backend: "crd"}
	pairs := []trafficPair{{"v1.", "core", "a"}, {"v1.", "core", "b"}, {"v1.g", "crd", "a"}}
	all, series := trafficOf(t, pairs...)
	if got := series(); len(got) != 0 {
		t.Errorf("nothing was counted, and there is %v", got)
	}
	all.count(core, "a", sent{verb: "LIST", code: 200, header: time.Millisecond, whole: time.Millisecond})
	all.count(core, "a", sent{verb: "LIST", code: 204})
	all.count(core, "b", sent{verb: "GET"})
	all.count(core, "b", sent{verb: "WATCH", code: 200, long: true})
	all.count(core, "b", sent{verb: "other", code: 799})
	all.count(crd, "a", sent{verb: "GET", code: 500})
	got := series()
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

	// A request that still counts does not bring the series of a removed endpoint back.
	all.keep(pairs[1:2])
	all.count(crd, "a", sent{verb: "GET", code: 200})
	for key := range series() {
		if !strings.Contains(key, "endpoint=b") && !strings.Contains(key, "endpoint=other") {
			t.Errorf("there still is %s", key)
		}
	}
	// A route that is added again has new ones.
	all.keep(pairs)
	all.count(crd, "a", sent{verb: "GET", code: 200})
	if got := series()["portico_upstream_requests_total{apiservice=v1.g,backend=crd,code=2xx,endpoint=a,verb=GET}"]; got != 1 {
		t.Errorf("counted %v", got)
	}
}

// The number of APIServices and endpoints with series of their own is bounded; those that
// have them keep them.
func TestTrafficBound(t *testing.T) {
	t.Parallel()
	first := trafficPair{"v1.g", "b", "first"}
	all, series := trafficOf(t, first)
	var pairs []trafficPair
	for i := range maxTraffic + 9 {
		pairs = append(pairs, trafficPair{fmt.Sprint("v", i%50, ".g"), "b", fmt.Sprint("https://", i)})
	}
	pairs = append(pairs, first)
	all.keep(pairs)
	for _, p := range pairs {
		all.count(&Route{Name: p.apiService, Backend: p.backend}, p.endpoint, sent{verb: "GET", code: 200})
	}
	got := series()
	if n := got["portico_upstream_requests_total{apiservice=other,backend=other,code=2xx,endpoint=other,verb=GET}"]; n != 10 {
		t.Errorf("%v requests are counted as others, want 10", n)
	}
	if n := got["portico_upstream_requests_total{apiservice=v1.g,backend=b,code=2xx,endpoint=first,verb=GET}"]; n != 1 {
		t.Errorf("%v requests of the first pair, want 1", n)
	}
}
