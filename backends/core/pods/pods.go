// Package pods has the actions on pods that are more than a write by a client: the binding to
// a node, and the eviction, which asks the disruption budgets of a pod before it is deleted.
//
// Runs in: core.
package pods

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"portico/resource"
	"portico/resource/rest"
)

var podResource = schema.GroupResource{Resource: "pods"}

// Actions are the actions on pods. Safe for concurrent use.
type Actions struct {
	// Find returns a served resource (group, resource).
	Find func(group, res string) *rest.Resource
	// Delete deletes a pod as a DELETE with the options would, without admission.
	Delete func(ctx context.Context, pods *rest.Resource, key resource.Key, opts *metav1.DeleteOptions) error
}

func (a *Actions) pods() *rest.Resource { return a.Find("", "pods") }

// modify changes a stored object; with dryRun it only checks whether change fails.
func modify[T rest.Object](ctx context.Context, r *rest.Resource, key resource.Key, dryRun bool, change func(T) error) (T, error) {
	if !dryRun {
		return rest.Modify(ctx, r, key, change)
	}
	obj, err := rest.GetObject[T](ctx, r, key, resource.At{})
	if err == nil {
		err = change(obj)
	}
	return obj, err
}

// setCondition adds a condition to the status, or replaces the one of its type.
func setCondition(status *corev1.PodStatus, c corev1.PodCondition) {
	c.LastTransitionTime = rest.Now()
	i := slices.IndexFunc(status.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
	if i < 0 {
		status.Conditions = append(status.Conditions, c)
		return
	}
	old := status.Conditions[i]
	c.ObservedGeneration = old.ObservedGeneration
	if c.Status == old.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	status.Conditions[i] = c
}
