package handlers

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource"
)

func TestDeprecatedAPIsAreCounted(t *testing.T) {
	m, registry := newDeprecatedMetrics(), prometheus.NewRegistry()
	registry.MustRegister(m.gauge)
	series := func() int {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				if n++; metric.GetGauge().GetValue() != 1 {
					t.Errorf("got %v", metric)
				}
			}
		}
		return n
	}
	for range 2 {
		m.requested(&resource.Action{Group: "a", Version: "v1", Resource: "b"})
		m.requested(&resource.Action{Group: "a", Version: "v1", Resource: "b", Subresource: "status"})
	}
	if n := series(); n != 2 {
		t.Errorf("%d series of 2 APIs", n)
	}
	for i := range 2 * maxDeprecated {
		m.requested(&resource.Action{Group: "a", Version: "v1", Resource: fmt.Sprint(i)})
	}
	if n := series(); n != maxDeprecated {
		t.Errorf("%d series", n)
	}
}
