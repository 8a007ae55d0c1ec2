package pods

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/apps/poddisruptionbudget"

	"portico/resource"
	"portico/resource/rest"
)

// maxDisrupted is how many evictions of a budget may wait until its controller has seen them.
const maxDisrupted = 2000

// budgetsOf returns the budgets that select the pod.
func (e *eviction) budgetsOf(ctx context.Context, pod *corev1.Pod) ([]*policyv1.PodDisruptionBudget, error) {
	list, err := rest.ListObjects[*policyv1.PodDisruptionBudget](ctx, e.Find(policyv1.GroupName, "poddisruptionbudgets"), resource.ListOptions{Namespace: pod.Namespace})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list, func(b *policyv1.PodDisruptionBudget) bool {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		return err != nil || !selector.Matches(labels.Set(pod.Labels)) // an invalid selector selects nothing
	}), nil
}

// sparesHealthy reports whether the eviction of a pod that is not ready costs the budget
// nothing.
func sparesHealthy(pod *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	if ready {
		return false
	}
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0
}

// spend takes one disruption from a budget. Errors: TooManyRequests and Forbidden.
func (e *eviction) spend(ctx context.Context, name string) error {
	key := resource.Key{Namespace: e.key.Namespace, Name: name}
	_, err := modify(ctx, e.Find(policyv1.GroupName, "poddisruptionbudgets"), key, len(e.opts.DryRun) > 0, func(b *policyv1.PodDisruptionBudget) error {
		if err := permits(b); err != nil {
			return err
		}
		if b.Status.DisruptionsAllowed--; b.Status.DisruptionsAllowed == 0 {
			poddisruptionbudget.UpdateDisruptionAllowedCondition(b)
		}
		if b.Status.DisruptedPods == nil {
			b.Status.DisruptedPods = map[string]metav1.Time{}
		}
		// Until its controller has seen that the pod is gone.
		b.Status.DisruptedPods[e.key.Name] = metav1.Now()
		return nil
	})
	return err
}

// permits returns the error of a budget that does not permit a disruption.
func permits(b *policyv1.PodDisruptionBudget) error {
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return tooManyRequests(b.Name)
	case s.DisruptionsAllowed < 0:
		const why = "pdb disruptions allowed is negative"
		return forbidden(b.Name, why, why)
	case len(s.DisruptedPods) > maxDisrupted:
		return forbidden(b.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
			"too many pending evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed > 0:
		return nil
	}
	c := meta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition)
	refused := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	cause := because("The disruption budget %s does not allow evicting pods currently", b.Name)
	switch {
	case refused && c.Reason == policyv1.SyncFailedReason: // the counts are out of date
		cause.Message += " because it failed sync: " + c.Message
	case s.CurrentHealthy <= s.DesiredHealthy:
		cause = because("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, s.DesiredHealthy, s.CurrentHealthy)
	case refused:
		cause.Message += fmt.Sprintf(" (%s): %s", c.Reason, c.Message)
	}
	err := apierrors.NewTooManyRequests(violates, 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, cause)
	return err
}
