// Package metrics counts requests, their admission, limits and health checks under
// kube-apiserver's names, with client_golang.
//
// The metrics of a label set are resolved once. Only a response that proves that a
// resource exists makes a new label set, and there are at most maxSeries of them: a
// client cannot fill the memory with invented names.
//
// Runs in: gateway, core, crd.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"portico/resource/serve/version"
)

// maxScrapes bounds concurrent scrapes, each of which holds all of the text; further
// ones are answered 503.
const maxScrapes = 8

// Metrics are the metrics of one process, in a registry of their own. Safe for
// concurrent use.
type Metrics struct {
	registry  *prometheus.Registry
	gatherers prometheus.Gatherers

	*requests
	*access
	handshakeErrors prometheus.Counter
}

// New returns the metrics of a process: its requests, the Go runtime and the process
// itself, and those of upstream's packages with names that begin with one of the prefixes
// (Shared).
func New(prefixes ...string) *Metrics {
	registry := prometheus.NewRegistry()
	factory := promauto.With(registry)
	m := &Metrics{
		registry: registry, gatherers: prometheus.Gatherers{registry},
		requests: newRequests(factory), access: newAccess(factory),
		handshakeErrors: factory.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_tls_handshake_errors_total", Help: "Connections closed because their TLS handshake failed.",
		}),
	}
	registry.MustRegister(buildInfo(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if len(prefixes) > 0 {
		m.gatherers = append(m.gatherers, Shared(prefixes...))
	}
	return m
}

// buildInfo returns upstream's metric of the version of the process.
func buildInfo() prometheus.Collector {
	v := version.Info()
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetes_build_info",
		Help: "The version of the process; the value is always 1.",
		ConstLabels: prometheus.Labels{
			"major": v.Major, "minor": v.Minor, "git_version": v.GitVersion, "git_commit": v.GitCommit, "git_tree_state": v.GitTreeState,
			"build_date": v.BuildDate, "go_version": v.GoVersion, "compiler": v.Compiler, "platform": v.Platform,
		},
	}, func() float64 { return 1 })
}

// Registry returns the registry in which other parts of the process register.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// HandshakeFailed counts a connection that failed its TLS handshake.
func (m *Metrics) HandshakeFailed() { m.handshakeErrors.Inc() }

// Handler serves the metrics as Prometheus text or OpenMetrics, compressed if the
// client accepts that. Metrics that cannot be gathered are left out.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.gatherers, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, EnableOpenMetrics: true, MaxRequestsInFlight: maxScrapes,
	})
}
