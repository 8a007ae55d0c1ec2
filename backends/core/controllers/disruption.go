package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-helpers/apps/poddisruptionbudget"
)

const (
	// evictionTimeout is how long a pod that an eviction has counted may exist before it
	// counts as healthy again.
	evictionTimeout = 2 * time.Minute
	// disruptionTimeout is how long a pod may have the condition DisruptionTarget without
	// being deleted.
	disruptionTimeout = 2 * time.Minute
)

// disruption keeps the status of PodDisruptionBudgets, which says how many pods may be evicted,
// and resets the condition DisruptionTarget of pods that were not deleted after all.
type disruption struct {
	env     *Env
	pods    corelisters.PodLister
	budgets policylisters.PodDisruptionBudgetLister
	owners  *podOwners
	queue   Queue
	stale   Queue // of pods
	events  record.EventRecorder
}

func runDisruption(ctx context.Context, env *Env) error {
	owners, err := newPodOwners(env)
	if err != nil {
		return err
	}
	pods, budgets := env.Informers.Core().V1().Pods(), env.Informers.Policy().V1().PodDisruptionBudgets()
	c := &disruption{
		env: env, pods: pods.Lister(), budgets: budgets.Lister(), owners: owners,
		queue: env.NewQueue("disruption"), stale: env.NewQueue("stale_pod_disruption"), events: env.Recorder("controllermanager"),
	}
	Handle(env, budgets.Informer(), func(old, cur *policyv1.PodDisruptionBudget) { c.queue.Add(Key(either(old, cur))) })
	Handle(env, pods.Informer(), func(old, cur *corev1.Pod) {
		c.queueBudget(either(old, cur))
		if wait, ok := c.untilStale(cur); ok {
			c.stale.AddAfter(Key(cur), wait)
		}
	})
	return env.Work(ctx, Loop{Queue: c.queue, Workers: 5, Sync: c.sync}, Loop{Queue: c.stale, Workers: 1, Sync: c.reset})
}

// queueBudget queues the budget of a pod.
func (c *disruption) queueBudget(pod *corev1.Pod) {
	budgets, err := c.budgets.GetPodPodDisruptionBudgets(pod)
	if err != nil || len(budgets) == 0 {
		return // an error says that there is none
	}
	if len(budgets) > 1 {
		c.events.Eventf(pod, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
			"Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", pod.Namespace, pod.Name, budgets[0].Name)
	}
	c.queue.Add(Key(budgets[0]))
}

// sync writes the status of a budget. One that cannot be computed allows no disruption, and is
// computed again later: the kind of an owner may just have been defined.
func (c *disruption) sync(ctx context.Context, namespace, name string) error {
	pdb, err := c.budgets.PodDisruptionBudgets(namespace).Get(name)
	if err != nil {
		return ignoreNotFound(err)
	}
	status, recheck, failed := c.status(ctx, pdb)
	if failed != nil {
		status = pdb.Status.DeepCopy()
		status.DisruptionsAllowed = 0
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason,
			Message: failed.Error(), ObservedGeneration: status.ObservedGeneration,
		})
	}
	if recheck > 0 {
		c.queue.AddAfter(Key(pdb), recheck)
	}
	if apiequality.Semantic.DeepEqual(*status, pdb.Status) {
		return failed
	}
	changed := pdb.DeepCopy()
	changed.Status = *status
	_, err = c.env.Client.PolicyV1().PodDisruptionBudgets(namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return errors.Join(failed, ignoreNotFound(err))
}

// status computes the status of a budget. recheck is when it changes by time alone; 0: never.
func (c *disruption) status(ctx context.Context, pdb *policyv1.PodDisruptionBudget) (_ *policyv1.PodDisruptionBudgetStatus, recheck time.Duration, err error) {
	selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
	var pods []*corev1.Pod
	if err == nil {
		pods, err = c.pods.Pods(pdb.Namespace).List(selector)
	}
	if err != nil {
		c.events.Eventf(pdb, corev1.EventTypeWarning, "NoPods", "Failed to get pods: %v", err)
		return nil, 0, err
	}
	if len(pods) == 0 {
		c.events.Eventf(pdb, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	expected, desired, unmanaged, err := c.expected(ctx, pdb, pods)
	if err != nil {
		c.events.Eventf(pdb, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: %v", err)
		return nil, 0, err
	}
	if unmanaged {
		c.events.Eventf(pdb, corev1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: %v) were found "+
			"to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
			"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.", pdb.Spec.Selector)
	}
	out := pdb.DeepCopy()
	out.Status.ExpectedPods, out.Status.DesiredHealthy, out.Status.ObservedGeneration = expected, desired, pdb.Generation
	out.Status.DisruptedPods, out.Status.CurrentHealthy, recheck = c.count(pdb, pods)
	out.Status.DisruptionsAllowed = 0
	if expected > 0 {
		out.Status.DisruptionsAllowed = max(0, out.Status.CurrentHealthy-desired)
	}
	if !poddisruptionbudget.ConditionsAreUpToDate(out) {
		poddisruptionbudget.UpdateDisruptionAllowedCondition(out)
	}
	return &out.Status, recheck, nil
}

// count returns the pods of a budget that are to be evicted, and how many are healthy and are
// not to be evicted.
func (c *disruption) count(pdb *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (disrupted map[string]metav1.Time, healthy int32, recheck time.Duration) {
	disrupted = map[string]metav1.Time{}
	now := c.env.Clock.Now()
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		since, evicted := pdb.Status.DisruptedPods[pod.Name]
		left := since.Add(evictionTimeout).Sub(now)
		switch {
		case evicted && left >= 0:
			disrupted[pod.Name] = since
			if recheck == 0 || left < recheck {
				recheck = max(left, time.Millisecond)
			}
			continue
		case evicted:
			c.events.Eventf(pod, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB %s/%s to be deleted but it wasn't", pdb.Namespace, pdb.Name)
		}
		if condition := podCondition(pod, corev1.PodReady); condition != nil && condition.Status == corev1.ConditionTrue {
			healthy++
		}
	}
	return disrupted, healthy, recheck
}

// expected returns how many pods of a budget there should be, and how many of them have to be
// healthy. unmanaged: some have no controller.
func (c *disruption) expected(ctx context.Context, pdb *policyv1.PodDisruptionBudget, pods []*corev1.Pod) (count, healthy int32, unmanaged bool, err error) {
	limit := pdb.Spec.MaxUnavailable
	if limit == nil {
		limit = pdb.Spec.MinAvailable
	}
	switch {
	case limit == nil:
		return 0, 0, false, nil
	case pdb.Spec.MaxUnavailable == nil && limit.Type == intstr.Int:
		return int32(len(pods)), limit.IntVal, false, nil
	}
	if count, unmanaged, err = c.scale(ctx, pods); err != nil {
		return 0, 0, false, err
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, int(count), true)
	if err != nil {
		return 0, 0, false, err
	}
	if pdb.Spec.MaxUnavailable != nil {
		n = max(0, int(count)-n)
	}
	return count, int32(n), unmanaged, nil
}

// scale returns the sum of the scales of the controllers of pods.
func (c *disruption) scale(ctx context.Context, pods []*corev1.Pod) (sum int32, unmanaged bool, err error) {
	scales, known := map[types.UID]int32{}, map[types.UID]bool{}
	for _, pod := range pods {
		ref := metav1.GetControllerOf(pod)
		if ref == nil {
			unmanaged = true
			continue
		}
		if known[ref.UID] {
			continue
		}
		known[ref.UID] = true
		uid, n, err := c.owners.scale(ctx, pod.Namespace, ref)
		if errors.Is(err, errNoOwner) {
			err = fmt.Errorf("found no controllers for pod %q", pod.Name)
		}
		if err != nil {
			return 0, false, err
		}
		scales[uid] = n
	}
	for n := range maps.Values(scales) {
		sum += n
	}
	return sum, unmanaged, nil
}

// untilStale returns when the condition DisruptionTarget of a pod is to be reset; ok is false
// if it is not to be. pod may be nil.
func (c *disruption) untilStale(pod *corev1.Pod) (wait time.Duration, ok bool) {
	if pod == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return 0, false
	}
	target := podCondition(pod, corev1.DisruptionTarget)
	if target == nil || target.Status != corev1.ConditionTrue || target.Reason == corev1.PodReasonTerminationByKubelet {
		return 0, false
	}
	return max(0, disruptionTimeout-c.env.Clock.Since(target.LastTransitionTime.Time)), true
}

// reset resets the condition DisruptionTarget of a pod.
func (c *disruption) reset(ctx context.Context, namespace, name string) error {
	pod, err := c.pods.Pods(namespace).Get(name)
	if err != nil {
		return ignoreNotFound(err)
	}
	wait, ok := c.untilStale(pod)
	if ok && wait > 0 {
		c.stale.AddAfter(Key(pod), wait)
	}
	if !ok || wait > 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": corev1.DisruptionTarget, "status": corev1.ConditionFalse, "lastTransitionTime": metav1.NewTime(c.env.Clock.Now()),
			"observedGeneration": pod.Generation, "reason": nil, "message": nil,
		}}},
	})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = c.env.Client.CoreV1().Pods(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return ignoreNotFound(err)
}

// podCondition returns a condition of a pod; nil if it has none of the type.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	if i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind }); i >= 0 {
		return &pod.Status.Conditions[i]
	}
	return nil
}
