package core

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico/backends/core/kinds"
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
	for name, value := range kinds.SystemPriorityClasses() {
		_, err := classes.Store.Get(ctx, resource.Key{Name: name}, resource.At{Freshness: resource.Any})
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return err
		}
		err = create(ctx, classes, &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority), Description: descriptions[name],
		})
		if err != nil {
			return err
		}
	}
	p.core.started.priorityClasses.Store(true)
	return nil
}

// descriptions are kube-apiserver's, which clients show.
var descriptions = map[string]string{
	"system-node-critical":    "Used for system critical pods that must not be moved from their current node.",
	"system-cluster-critical": "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
}
