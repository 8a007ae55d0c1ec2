package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"
)

const (
	// pvcFinalizer keeps a claim that a pod uses from being deleted.
	pvcFinalizer = "kubernetes.io/pvc-protection"
	// claimIndex is the index of pods by the keys of their claims.
	claimIndex = "claim"
)

// claimProtection gives claims their finalizer, takes it from those that are deleted and used
// by no pod, and writes the condition Unused.
//
// That no pod uses a claim is decided by a list of the pods, because the informer may be
// late. Claims of one namespace that are handled together share the list.
type claimProtection struct {
	env    *Env
	claims corelisters.PersistentVolumeClaimLister
	pods   cache.Indexer
	queue  Queue // of namespaces

	mu     sync.Mutex
	queued map[string]map[string]bool // names of claims by namespace
}

func runClaimProtection(ctx context.Context, env *Env) error {
	claims, pods := env.Informers.Core().V1().PersistentVolumeClaims(), env.Informers.Core().V1().Pods().Informer()
	c := &claimProtection{
		env: env, claims: claims.Lister(), pods: env.Index(pods, claimIndex, claimsOfPod), queue: env.NewQueue("pvcprotection"), queued: map[string]map[string]bool{},
	}
	Handle(env, claims.Informer(), func(_, pvc *corev1.PersistentVolumeClaim) {
		if pvc != nil && (protectionChanges(pvc, pvcFinalizer) || unused(pvc) == nil) {
			c.add(pvc.Namespace, pvc.Name)
		}
	})
	Handle(env, pods, func(old, cur *corev1.Pod) {
		if old != nil && cur != nil && old.UID == cur.UID && old.Spec.NodeName == cur.Spec.NodeName && stopped(old) == stopped(cur) && shutDown(old) == shutDown(cur) {
			return // the claims of a pod never change
		}
		for _, pod := range []*corev1.Pod{old, cur} {
			for _, name := range claimNames(pod) {
				c.add(pod.Namespace, name)
			}
		}
	})
	return env.Work(ctx, Loop{Queue: c.queue, Workers: 5, Sync: c.sync})
}

func (c *claimProtection) add(namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queued[namespace] == nil {
		c.queued[namespace] = map[string]bool{}
	}
	c.queued[namespace][name] = true
	c.queue.Add(namespace)
}

// sync handles the queued claims of a namespace.
func (c *claimProtection) sync(ctx context.Context, _, namespace string) error {
	c.mu.Lock()
	names := c.queued[namespace]
	delete(c.queued, namespace)
	c.mu.Unlock()
	live := sync.OnceValues(func() ([]corev1.Pod, error) {
		list, err := c.env.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		return list.Items, nil
	})
	var errs []error
	for name := range names {
		if err := c.syncClaim(ctx, namespace, name, live); ignoreNotFound(err) != nil {
			errs = append(errs, err)
			c.mu.Lock()
			if c.queued[namespace] == nil {
				c.queued[namespace] = map[string]bool{}
			}
			c.queued[namespace][name] = true
			c.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// syncClaim writes the condition and the finalizer of a claim. live lists the pods of its
// namespace.
func (c *claimProtection) syncClaim(ctx context.Context, namespace, name string, live func() ([]corev1.Pod, error)) error {
	pvc, err := c.claims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return err
	}
	client := c.env.Client.CoreV1().PersistentVolumeClaims(namespace)
	if pvc.DeletionTimestamp == nil && pvc.Status.Phase == corev1.ClaimBound {
		used, err := c.used(pvc, live, func(pod *corev1.Pod, _ bool) bool { return !stopped(pod) })
		if err != nil {
			return err
		}
		patch, err := c.conditionPatch(pvc, used)
		if err != nil {
			return err
		}
		if patch != nil {
			if pvc, err = client.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
				return fmt.Errorf("write condition of claim: %w", err)
			}
		}
	}
	if !protectionChanges(pvc, pvcFinalizer) {
		return nil
	}
	if pvc.DeletionTimestamp != nil {
		used, err := c.used(pvc, live, func(pod *corev1.Pod, isEphemeral bool) bool {
			return pod.Spec.NodeName != "" && !(isEphemeral && shutDown(pod))
		})
		if err != nil || used {
			return err
		}
	}
	patch, err := protectionPatch(pvc, pvcFinalizer)
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// used reports whether a pod that counts uses a claim. counts is given the pod and whether its
// volume is ephemeral.
func (c *claimProtection) used(pvc *corev1.PersistentVolumeClaim, live func() ([]corev1.Pod, error), counts func(*corev1.Pod, bool) bool) (bool, error) {
	uses := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			switch {
			case v.PersistentVolumeClaim != nil:
				return v.PersistentVolumeClaim.ClaimName == pvc.Name && counts(pod, false)
			case v.Ephemeral != nil:
				return ephemeral.VolumeClaimName(pod, &v) == pvc.Name && ephemeral.VolumeIsForPod(pod, pvc) == nil && counts(pod, true)
			}
			return false
		})
	}
	known, err := c.pods.ByIndex(claimIndex, Key(pvc))
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(known, func(o any) bool { return uses(o.(*corev1.Pod)) }) {
		return true, nil
	}
	pods, err := live()
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return uses(&pod) }), err
}

// conditionPatch returns a patch that sets the condition Unused; nil if it is set already.
func (c *claimProtection) conditionPatch(pvc *corev1.PersistentVolumeClaim, used bool) ([]byte, error) {
	want := corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimUnused, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(c.env.Clock.Now()),
		Reason: "NoPodsUsingPVC", Message: "No pods are currently referencing this PVC",
	}
	if used {
		want.Status, want.Reason, want.Message = corev1.ConditionFalse, "PodUsingPVC", "A pod is currently referencing this PVC"
	}
	if have := unused(pvc); have != nil && (have.Status == corev1.ConditionTrue) == !used {
		return nil, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pvc.UID, "resourceVersion": pvc.ResourceVersion},
		"status":   map[string]any{"conditions": []any{want}},
	})
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}

// unused returns the condition Unused of a claim; nil if it has none.
func unused(pvc *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimCondition {
	for i, c := range pvc.Status.Conditions {
		if c.Type == corev1.PersistentVolumeClaimUnused {
			return &pvc.Status.Conditions[i]
		}
	}
	return nil
}

func claimsOfPod(obj any) ([]string, error) {
	pod := obj.(*corev1.Pod)
	out := claimNames(pod)
	for i := range out {
		out[i] = pod.Namespace + "/" + out[i]
	}
	return out, nil
}

// claimNames returns the names of the claims of a pod's volumes. pod may be nil.
func claimNames(pod *corev1.Pod) (out []string) {
	if pod == nil {
		return nil
	}
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			out = append(out, ephemeral.VolumeClaimName(pod, v))
		}
	}
	return out
}

// stopped reports whether no container of a pod runs or will run.
func stopped(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return true
	}
	running := func(s corev1.ContainerStatus) bool { return s.State.Terminated == nil && s.State.Waiting == nil }
	return pod.DeletionTimestamp != nil &&
		!slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses), running)
}

// shutDown reports whether a pod is being deleted without grace.
func shutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}
