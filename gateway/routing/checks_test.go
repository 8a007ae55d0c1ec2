package routing

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice/availability"
	"portico/apiservice/backend"
)

// A server is healthy while one endpoint is, unhealthy if all are, and else unknown.
func TestTogether(t *testing.T) {
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
	for every, want := range map[time.Duration]time.Duration{
		0: 5 * time.Second, 100 * time.Millisecond: minDiscoveryInterval, 2 * time.Second: 2 * time.Second, time.Minute: time.Minute,
	} {
		b := &backend.Backend{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: backend.Spec{
			Endpoints: []backend.Endpoint{{URL: one}}, HealthCheck: &backend.HealthCheck{Path: "/readyz"},
		}}
		if every > 0 {
			b.Spec.HealthCheck.Interval = &metav1.Duration{Duration: every}
		}
		s := onService(t, widgetsAt(func(*apireg.APIServiceSpec) {}), b)
		checks := s.servers["backend/b"].checks(s)
		if len(checks) != 2 || checks[0].ID != s.servers["backend/b"].discoveryTarget() || checks[0].Schedule.Interval != want {
			t.Errorf("interval %v: %d checks, discovery each %v, want %v", every, len(checks), checks[0].Schedule.Interval, want)
		}
	}
}
