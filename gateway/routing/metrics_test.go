package routing

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"portico/apiservice/availability"
)

// Checks are counted by endpoint and result; the series of an endpoint that is no longer
// checked are deleted.
func TestCheckMetrics(t *testing.T) {
	m := newCheckMetrics()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.total, m.duration)
	fails := errors.New("it does not answer")
	targets := func() []availability.Target {
		return []availability.Target{
			{ID: "backend/a", Probe: func(context.Context) error { return nil }},
			{ID: "backend/b", Probe: func(context.Context) error { return fails }},
		}
	}
	names := []checkName{{"a", "https://one"}, {"b", discoveryCheck}}
	first, again := targets(), targets()
	m.count(first, names)
	m.count(again, names)
	for _, target := range []availability.Target{first[0], again[0], again[1]} {
		if err := target.Probe(t.Context()); err != nil && !errors.Is(err, fails) {
			t.Error(err)
		}
	}
	got := gathered(t, registry)
	for key, want := range map[string]float64{
		"portico_upstream_checks_total{backend=a,endpoint=https://one,result=passed}": 2,
		"portico_upstream_checks_total{backend=a,endpoint=https://one,result=failed}": 0,
		"portico_upstream_checks_total{backend=b,endpoint=discovery,result=failed}":   1,
		"portico_upstream_check_duration_seconds{backend=a,endpoint=https://one}":     2,
	} {
		if n, ok := got[key]; !ok || n != want {
			t.Errorf("%s: got %v, want %v", key, n, want)
		}
	}
	m.count(nil, nil)
	if got := gathered(t, registry); len(got) != 0 {
		t.Errorf("nothing is checked, and there are series: %v", got)
	}
}

// gathered returns the values of all series, and counts of histograms, by name and labels.
func gathered(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			key := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			out[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}
