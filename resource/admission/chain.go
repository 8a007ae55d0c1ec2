package admission

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/admission"
	admissionmetrics "k8s.io/apiserver/pkg/admission/metrics"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"

	"portico/resource/rest"
)

// Chain calls the members in order, for mutation and for validation, until the first error.
// It is safe for concurrent use if the members are.
func Chain(list ...rest.Admission) rest.Admission { return chain(list) }

type chain []rest.Admission

// Mutate calls the members in order.
func (c chain) Mutate(ctx context.Context, a *rest.Attributes) error {
	for _, member := range c {
		if err := member.Mutate(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Validate calls the members in order.
func (c chain) Validate(ctx context.Context, a *rest.Attributes) error {
	for _, member := range c {
		if err := member.Validate(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

// Phases of a plugin in metrics.
const (
	PhaseAdmit    = "admit"
	PhaseValidate = "validate"
)

// Names of the plugins of this package.
const (
	PluginLifecycle          = "NamespaceLifecycle"
	PluginMutatingPolicies   = mutatingpolicy.PluginName
	PluginMutatingWebhooks   = mutatingwebhook.PluginName
	PluginValidatingPolicies = validatingpolicy.PluginName
	PluginValidatingWebhooks = validatingwebhook.PluginName
)

// Timed returns the admission with its phases timed in upstream's metrics.
func Timed(a rest.Admission) rest.Admission { return timed{a} }

type timed struct{ rest.Admission }

// Mutate times the first phase.
func (t timed) Mutate(ctx context.Context, a *rest.Attributes) error {
	begun := time.Now()
	err := t.Admission.Mutate(ctx, a)
	admissionmetrics.Metrics.ObserveAdmissionStep(ctx, time.Since(begun), err != nil, operation{op: a.Operation}, PhaseAdmit)
	return err
}

// Validate times the second phase.
func (t timed) Validate(ctx context.Context, a *rest.Attributes) error {
	begun := time.Now()
	err := t.Admission.Validate(ctx, a)
	admissionmetrics.Metrics.ObserveAdmissionStep(ctx, time.Since(begun), err != nil, operation{op: a.Operation}, PhaseValidate)
	return err
}

// Observe times a phase of a plugin that began at begun and ends now with err.
func Observe(ctx context.Context, begun time.Time, plugin, phase string, op rest.Operation, err error) {
	admissionmetrics.Metrics.ObserveAdmissionController(ctx, time.Since(begun), err != nil, operation{op: op}, phase, plugin)
}

// operation is the part of admission.Attributes that upstream's metrics use.
type operation struct {
	admission.Attributes
	op rest.Operation
}

func (o operation) GetOperation() admission.Operation { return admission.Operation(o.op) }

// EngineMetrics returns the prefixes of the metrics of admission, pod security, webhooks, policies
// and CEL in the registry of component-base.
func EngineMetrics() []string {
	return []string{
		"apiserver_admission_", "apiserver_validating_admission_policy_", "apiserver_mutating_admission_policy_", "apiserver_cel_", "apiserver_webhooks_", "pod_security_",
	}
}
