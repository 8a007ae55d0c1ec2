package routing

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
)

// A server is healthy while one endpoint is, unhealthy if all are, and else unknown.
func TestTogether(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	good := func(s int) availability.Verdict {
		return availability.Verdict{Known: true, Healthy: true, Since: at(s)}
	}
	bad := func(s int) availability.Verdict {
		return availability.Verdict{Known: true, Err: fmt.Errorf("bad since %d", s), Since: at(s)}
	}
	for name, c := range map[string]struct {
		of             []availability.Verdict
		known, healthy bool
		since          int
		err            string
	}{
		"none":             {},
		"unknown":          {of: []availability.Verdict{{}, {}}},
		"one bad":          {of: []availability.Verdict{{}, bad(1)}},
		"one good":         {of: []availability.Verdict{{}, bad(1), good(2)}, known: true, healthy: true, since: 2},
		"good for longest": {of: []availability.Verdict{good(5), good(3), good(4)}, known: true, healthy: true, since: 3},
		"all bad":          {of: []availability.Verdict{bad(3), bad(5), bad(4)}, known: true, since: 5, err: "bad since 5"},
	} {
		v := together(c.of)
		if v.Known != c.known || v.Healthy != c.healthy || c.known && !v.Since.Equal(at(c.since)) || c.err != "" && v.Err.Error() != c.err {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// If endpoints are checked by themselves, discovery is read as often as they are, within a
// bound.
func TestDiscoveryInterval(t *testing.T) {
	t.Parallel()
	for every, want := range map[time.Duration]time.Duration{
		0: 5 * time.Second, 100 * time.Millisecond: minDiscoveryInterval, 2 * time.Second: 2 * time.Second, time.Minute: time.Minute,
	} {
		b := backendAt(one)
		b.Spec.HealthCheck = &backend.HealthCheck{Path: "/readyz"}
		if every > 0 {
			b.Spec.HealthCheck.Interval = &metav1.Duration{Duration: every}
		}
		s := onService(t, widgetsAt(), b)
		checks := s.servers["backend/b"].checks(s)
		if len(checks) != 2 || checks[0].ID != s.servers["backend/b"].discoveryTarget() || checks[0].Schedule.Interval != want {
			t.Errorf("interval %v: %d checks, discovery each %v, want %v", every, len(checks), checks[0].Schedule.Interval, want)
		}
	}
}

// Checks are counted by endpoint and result; the series of an endpoint that is no longer
// checked are deleted.
func TestCheckMetrics(t *testing.T) {
	t.Parallel()
	m := newCheckMetrics()
	fails := errors.New("it does not answer")
	count := func() []availability.Target {
		targets := []availability.Target{
			{Probe: func(context.Context) error { return nil }}, {Probe: func(context.Context) error { return fails }},
		}
		m.count(targets, []checkName{{"a", one}, {"b", discoveryCheck}})
		return targets
	}
	first, again := count(), count()
	for _, target := range []availability.Target{first[0], again[0], again[1]} {
		if err := target.Probe(t.Context()); err != nil && !errors.Is(err, fails) {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name   checkName
		result string
		want   float64
	}{
		{checkName{"a", one}, "passed", 2}, {checkName{"a", one}, "failed", 0},
		{checkName{"b", discoveryCheck}, "passed", 0}, {checkName{"b", discoveryCheck}, "failed", 1},
	} {
		var got dto.Metric
		if err := m.total.WithLabelValues(c.name.backend, c.name.endpoint, c.result).Write(&got); err != nil || got.GetCounter().GetValue() != c.want {
			t.Errorf("%v %s: %v, %v; want %v", c.name, c.result, &got, err, c.want)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.total, m.duration)
	m.count(nil, nil)
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("nothing is checked, and there are %v, %v", families, err)
	}
}
