// Package quota is the admission plugin ResourceQuota: it charges writes to the quotas of their
// namespace before they are stored, by the engine of k8s.io/apiserver.
//
// Runs in: core, crd.
//
// Decisions:
//   - A write is charged by a conditional update of the quota's status, in batches of a
//     namespace. Quotas are read anew for each batch, so that only another writer of the quota
//     in the same moment makes that update fail; the engine repeats it three times.
//   - A charge is made before the object is stored and not taken back if that fails: the
//     controller resourcequota-controller corrects it. So usage is never too low.
//   - Writes in a namespace without a quota that names their resource cost one look at memory.
package quota

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	resourcequotaapi "k8s.io/apiserver/pkg/admission/plugin/resourcequota/apis/resourcequota"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"

	"portico/resource"
	"portico/resource/admission"
	"portico/resource/rest"
)

// Name is the name of the plugin.
const Name = "ResourceQuota"

const (
	// workers is the number of namespaces in which writes are charged at the same time.
	workers = 5
	// timeout bounds reading and updating quotas for one batch.
	timeout = 5 * time.Second
)

// Quotas are the quotas of all namespaces.
type Quotas interface {
	// List returns the quotas of a namespace: those in memory, or with latest the current ones.
	// The caller does not change them.
	List(ctx context.Context, namespace string, latest bool) ([]*corev1.ResourceQuota, error)
	// UpdateStatus stores the status of a quota. Errors: Conflict if the quota is not the one
	// of q's resourceVersion; NotFound.
	UpdateStatus(ctx context.Context, q *corev1.ResourceQuota) error
}

// Config of a plugin.
type Config struct {
	// Quotas are charged. Required.
	Quotas Quotas
	// Evaluators measure the objects of resources. Those of others are counted, except Ignored.
	Evaluators []quota.Evaluator
	Ignored    map[schema.GroupResource]struct{}
	// Limited are the resources that cannot be used without a quota; nil: none.
	Limited *resourcequotaapi.Configuration
	// Stop ends the goroutines of the plugin, which run from the first charge on. nil: they
	// run until the process ends.
	Stop <-chan struct{}
}

// Plugin charges writes to quotas. Safe for concurrent use.
type Plugin struct {
	cfg      Config
	registry quota.Registry
	start    sync.Once
	engine   upstream.Evaluator
}

var _ rest.Admission = (*Plugin)(nil)

// New returns a Plugin.
func New(cfg Config) *Plugin {
	if cfg.Limited == nil {
		cfg.Limited = &resourcequotaapi.Configuration{}
	}
	return &Plugin{cfg: cfg, registry: generic.NewRegistry(cfg.Evaluators)}
}

// Mutate implements rest.Admission. It changes nothing.
func (p *Plugin) Mutate(context.Context, *rest.Attributes) error { return nil }

// Validate charges the write, or refuses it.
func (p *Plugin) Validate(ctx context.Context, a *rest.Attributes) error {
	gr := a.Kind.GroupResource()
	if _, ignored := p.cfg.Ignored[gr]; ignored || a.Key.Namespace == "" || a.Kind.Virtual() {
		return nil
	}
	if a.Operation != rest.Create && a.Operation != rest.Update {
		return nil
	}
	if concerned, err := p.concerns(ctx, a.Key.Namespace, gr); err != nil || !concerned {
		return err
	}
	p.start.Do(p.run)
	return p.engine.Evaluate(admission.NewAttributes(a))
}

// run starts the engine.
func (p *Plugin) run() {
	p.engine = upstream.NewQuotaEvaluator(accessor{p.cfg.Quotas}, p.cfg.Ignored, p.registry, nil, p.cfg.Limited, workers, p.cfg.Stop)
}

// concerns reports whether writes to a resource in a namespace may have to be charged.
func (p *Plugin) concerns(ctx context.Context, namespace string, gr schema.GroupResource) (bool, error) {
	if len(p.cfg.Limited.LimitedResources) > 0 {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	list, err := p.cfg.Quotas.List(ctx, namespace, false)
	if err != nil {
		return false, unknown(err)
	}
	if len(list) == 0 {
		return false, nil
	}
	evaluator := p.registry.Get(gr)
	if evaluator == nil {
		evaluator = generic.NewObjectCountEvaluator(gr, nil, "")
	}
	for _, q := range list {
		if len(evaluator.MatchingResources(quota.ResourceNames(q.Spec.Hard))) > 0 || len(evaluator.MatchingResources(quota.ResourceNames(q.Status.Hard))) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// accessor reads and updates quotas for the engine, which has no contexts.
type accessor struct{ quotas Quotas }

// GetQuotas implements resourcequota.QuotaAccessor.
func (a accessor) GetQuotas(namespace string) ([]corev1.ResourceQuota, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	list, err := a.quotas.List(ctx, namespace, true)
	if err != nil {
		return nil, unknown(err)
	}
	out := make([]corev1.ResourceQuota, len(list))
	for i, q := range list {
		out[i] = *q
	}
	return out, nil
}

// UpdateQuotaStatus implements resourcequota.QuotaAccessor.
func (a accessor) UpdateQuotaStatus(q *corev1.ResourceQuota) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return a.quotas.UpdateStatus(ctx, q)
}

// unknown returns the error of a write if its quotas cannot be read.
func unknown(err error) error {
	return resource.Unavailable(fmt.Sprintf("the resource quotas cannot be read: %v", err), 1)
}
