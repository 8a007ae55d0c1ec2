package openapi

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// v2Metrics are upstream's of the aggregated v2 document, and which servers' part
// of it is broken.
type v2Metrics struct {
	count    *prometheus.CounterVec
	duration *prometheus.GaugeVec
	broken   *prometheus.GaugeVec
	last     map[string]error // of one goroutine
}

func newV2Metrics(registry prometheus.Registerer) *v2Metrics {
	m := &v2Metrics{
		count: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aggregator_openapi_v2_regeneration_count",
			Help: "How often the OpenAPI v2 document was made anew, by the APIService that caused it and the reason.",
		}, []string{"apiservice", "reason"}),
		duration: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aggregator_openapi_v2_regeneration_duration",
			Help: "How long it last took to make the OpenAPI v2 document anew, in seconds, by reason.",
		}, []string{"reason"}),
		broken: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "portico_openapi_v2_broken_apiservice",
			Help: "APIServices whose part of the OpenAPI v2 document cannot be had (1).",
		}, []string{"name"}),
		last: map[string]error{},
	}
	registry.MustRegister(m.count, m.duration, m.broken)
	return m
}

// changed counts what differs between the parts of two documents, by APIService, and
// returns the reason that stands for all; "" if nothing does.
func (m *v2Metrics) changed(before, after map[string]*v2Part) (reason string) {
	note := func(name, why string) {
		m.count.WithLabelValues(name, why).Inc()
		if reason == "" {
			reason = why
		}
	}
	for name, p := range after {
		switch was := before[name]; {
		case was == nil:
			note(name, "add")
		case was != p:
			note(name, "update")
		}
	}
	for name := range before {
		if after[name] == nil {
			note(name, "delete")
		}
	}
	return reason
}

func (m *v2Metrics) took(reason string, d time.Duration) {
	if reason != "" {
		m.duration.WithLabelValues(reason).Set(d.Seconds())
	}
}

// failed sets the APIServices whose parts cannot be had. An error is logged once.
func (m *v2Metrics) failed(now map[string]error, log *slog.Logger) {
	for name, err := range now {
		if was := m.last[name]; was == nil || was.Error() != err.Error() {
			log.Warn("the OpenAPI v2 document of an APIService cannot be had", "apiservice", name, "err", err)
		}
		m.broken.WithLabelValues(name).Set(1)
	}
	for name := range m.last {
		if now[name] == nil {
			m.broken.DeleteLabelValues(name)
		}
	}
	m.last = now
}
