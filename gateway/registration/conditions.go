package registration

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"portico/apiservice"
	"portico/resource"
	"portico/resource/rest"
)

// writeConditions writes the conditions that differ from the stored ones. It returns when a
// delayed message may be written; 0: none is delayed.
func (g *registrar) writeConditions(ctx context.Context, stored map[string]*apireg.APIService, known map[string]apiservice.Condition) (again time.Duration, err error) {
	now := time.Now()
	g.messages.forget(now)
	var differ []string
	for name, want := range known {
		a := stored[name]
		if a == nil {
			continue
		}
		have, ok := apiservice.Current(a)
		if ok && have.Agrees(want) {
			continue
		}
		if ok && have.Status == want.Status && have.Reason == want.Reason {
			if wait := g.messages.wait(name, now); wait > 0 {
				again = sooner(again, wait)
				continue
			}
			g.messages.spend(name, now)
		}
		differ = append(differ, name)
	}
	return again, each(differ, func(name string) error { return g.setCondition(ctx, name, known[name]) })
}

// sooner returns the shorter wait; 0 is none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// setCondition writes the condition of an APIService, if it still exists.
func (g *registrar) setCondition(ctx context.Context, name string, want apiservice.Condition) error {
	_, err := rest.Modify(ctx, g.services, resource.Key{Name: name}, func(a *apireg.APIService) error {
		if have, ok := apiservice.Current(a); !ok || !have.Agrees(want) {
			apiservice.Set(a, want.ObservedBy(g.observer), time.Now())
		}
		return nil
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write condition of APIService %q: %w", name, err)
	}
	return nil
}

// availabilityMetrics are upstream's metrics of APIServices (docs/wire.md 1.6). Of the
// registrar's goroutine only.
type availabilityMetrics struct {
	unavailable *prometheus.GaugeVec
	total       *prometheus.CounterVec
	last        map[string]apiservice.Condition
}

func newAvailabilityMetrics(registry prometheus.Registerer) *availabilityMetrics {
	m := &availabilityMetrics{
		unavailable: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aggregator_unavailable_apiservice",
			Help: "Whether an APIService is unavailable (1) or not (0).",
		}, []string{"name"}),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_unavailable_apiservice_total",
			Help: "How often an APIService became unavailable, by the reason of its condition.",
		}, []string{"name", "reason"}),
	}
	registry.MustRegister(m.unavailable, m.total)
	return m
}

// set updates the metrics to the conditions of all APIServices, and deletes the gauges of
// others.
func (m *availabilityMetrics) set(conditions map[string]apiservice.Condition) {
	for name := range m.last {
		if _, ok := conditions[name]; !ok {
			m.unavailable.DeleteLabelValues(name)
		}
	}
	for name, c := range conditions {
		before, seen := m.last[name]
		if seen && before == c {
			continue
		}
		if c.Available() {
			m.unavailable.WithLabelValues(name).Set(0)
			continue
		}
		m.unavailable.WithLabelValues(name).Set(1)
		if !seen || before.Available() || before.Reason != c.Reason {
			reason := c.Reason
			if reason == "" {
				reason = "UnknownReason"
			}
			m.total.WithLabelValues(name, reason).Inc()
		}
	}
	m.last = conditions
}
