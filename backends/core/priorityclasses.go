package core

import (
	"context"

	schedulinghelpers "k8s.io/kubernetes/pkg/apis/scheduling/v1"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"portico/resource"
	"portico/resource/loop"
)

// priorityClasses keeps the priority classes of the system, which pods refer to by name.
type priorityClasses struct{ core *Core }

// run creates the classes, and every minute those that are missing.
func (p *priorityClasses) run(ctx context.Context) error {
	return p.core.reconcile(ctx, "system priority classes", &loop.Signal{}, p.ensure)
}

func (p *priorityClasses) ensure(ctx context.Context) error {
	classes := p.core.find(schedulingv1.GroupName, "priorityclasses")
	for _, class := range schedulinghelpers.SystemPriorityClasses() {
		_, err := classes.Store.Get(ctx, resource.Key{Name: class.Name}, resource.At{Freshness: resource.Any})
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		class.Generation, class.PreemptionPolicy = 1, new(corev1.PreemptLowerPriority)
		if err := create(ctx, classes, class); err != nil {
			return err
		}
	}
	p.core.started.priorityClasses.Store(true)
	return nil
}
