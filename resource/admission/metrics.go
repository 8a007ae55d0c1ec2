package admission

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"portico/resource/rest"
)

// Names of what decides about writes, in metrics.
const (
	nameLifecycle          = "NamespaceLifecycle"
	nameMutatingWebhooks   = "MutatingAdmissionWebhook"
	nameValidatingWebhooks = "ValidatingAdmissionWebhook"
	nameMutatingPolicies   = "MutatingAdmissionPolicy"
	nameValidatingPolicies = "ValidatingAdmissionPolicy"
	phaseAdmit             = "admit"
	phaseValidate          = "validate"
)

// Metrics time admission under upstream's names: phases and plugins. A nil *Metrics
// times nothing. Safe for concurrent use.
type Metrics struct {
	admit, validate *timer // of all together
	controllers     map[string]*timer
}

// NewMetrics returns metrics that registry shows.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	buckets := []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}
	steps := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_admission_step_admission_duration_seconds",
		Help:    "Time that admission took in all, by phase (admit or validate), operation and whether the write was refused, in seconds.",
		Buckets: buckets,
	}, []string{"type", "operation", "rejected"})
	controllers := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_admission_controller_admission_duration_seconds",
		Help:    "Time that one part of admission took, by its name, phase, operation and whether it refused the write, in seconds.",
		Buckets: buckets,
	}, []string{"name", "type", "operation", "rejected"})
	registry.MustRegister(steps, controllers)
	m := &Metrics{
		admit: &timer{vec: steps, labels: []string{phaseAdmit}}, validate: &timer{vec: steps, labels: []string{phaseValidate}},
		controllers: map[string]*timer{},
	}
	for name, phase := range map[string]string{
		nameLifecycle: phaseAdmit, nameMutatingPolicies: phaseAdmit, nameMutatingWebhooks: phaseAdmit,
		nameValidatingPolicies: phaseValidate, nameValidatingWebhooks: phaseValidate,
	} {
		m.controllers[name] = &timer{vec: controllers, labels: []string{name, phase}}
	}
	return m
}

// controller returns the timer of one part; nil of nil Metrics.
func (m *Metrics) controller(name string) *timer {
	if m == nil {
		return nil
	}
	return m.controllers[name]
}

// Timed returns the admission with its phases timed.
func (m *Metrics) Timed(a rest.Admission) rest.Admission {
	if m == nil {
		return a
	}
	return timed{a, m}
}

type timed struct {
	rest.Admission
	metrics *Metrics
}

// Mutate times the first phase.
func (t timed) Mutate(ctx context.Context, a *rest.Attributes) error {
	begun := time.Now()
	err := t.Admission.Mutate(ctx, a)
	t.metrics.admit.observe(begun, a.Operation, err)
	return err
}

// Validate times the second phase.
func (t timed) Validate(ctx context.Context, a *rest.Attributes) error {
	begun := time.Now()
	err := t.Admission.Validate(ctx, a)
	t.metrics.validate.observe(begun, a.Operation, err)
	return err
}

// operations are those that writes are timed by.
var operations = [...]rest.Operation{rest.Create, rest.Update, rest.Delete, rest.Connect}

// timer observes durations. Its histograms are looked up once each: a write
// costs two of them at least. A nil timer observes nothing.
type timer struct {
	vec    *prometheus.HistogramVec
	labels []string // the first ones
	// found are the histograms by operation and by whether the write was refused.
	found [len(operations)][2]atomic.Pointer[prometheus.Observer]
}

// observe notes what began so long ago and ended with err.
func (t *timer) observe(begun time.Time, operation rest.Operation, err error) {
	if t == nil {
		return
	}
	took := time.Since(begun).Seconds()
	for i, o := range operations {
		if o == operation {
			t.of(i, err != nil).Observe(took)
			return
		}
	}
}

func (t *timer) of(operation int, refused bool) prometheus.Observer {
	rejected, at := "false", &t.found[operation][0]
	if refused {
		rejected, at = "true", &t.found[operation][1]
	}
	if found := at.Load(); found != nil {
		return *found
	}
	observer := t.vec.WithLabelValues(append(t.labels[:len(t.labels):len(t.labels)], string(operations[operation]), rejected)...)
	at.Store(&observer)
	return observer
}

// EngineMetrics returns how the names begin of what the engines count by themselves,
// about webhooks, policies and CEL, in the registry that upstream's parts share.
func EngineMetrics() (beginnings []string) {
	return []string{
		"apiserver_admission_", "apiserver_validating_admission_policy_", "apiserver_mutating_admission_policy_", "apiserver_cel_", "apiserver_webhooks_",
	}
}
