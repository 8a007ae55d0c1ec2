package audit

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// complainEvery bounds how often lost events are logged.
const complainEvery = time.Second

// losses counts lost events. Upstream logs each of them, which would double the load while
// a sink is away.
type losses struct {
	counter *metrics.CounterVec
	log     *slog.Logger
	// since counts the losses that were not logged, and last is the Unix time of the last
	// log, in nanoseconds.
	since, last atomic.Int64
}

// newLosses finds upstream's counter of lost events by registering another one of the same
// name.
func newLosses(log *slog.Logger) (*losses, error) {
	own := metrics.NewCounterVec(&metrics.CounterOpts{
		Subsystem: "apiserver_audit", Name: "error_total", StabilityLevel: metrics.ALPHA,
		Help: "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
	}, []string{"plugin"})
	var registered prometheus.AlreadyRegisteredError
	if err := legacyregistry.Register(own); errors.As(err, &registered) {
		if counter, ok := registered.ExistingCollector.(*metrics.CounterVec); ok {
			return &losses{counter: counter, log: log}, nil
		}
	}
	return nil, errors.New("find the counter of lost audit events")
}

// add counts n events that a plugin lost.
func (l *losses) add(plugin string, err error, n int) {
	l.counter.WithLabelValues(plugin).Add(float64(n))
	lost := l.since.Add(int64(n))
	now, last := time.Now().UnixNano(), l.last.Load()
	if now-last < int64(complainEvery) || !l.last.CompareAndSwap(last, now) {
		return
	}
	l.since.Add(-lost)
	l.log.Error("audit events are lost", "plugin", plugin, "err", err, "events", lost)
}
