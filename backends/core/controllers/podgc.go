package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
)

const (
	podGCPeriod = 20 * time.Second
	// nodeQuarantine is how long a node must be absent before its pods are deleted.
	nodeQuarantine = 40 * time.Second
	// podGCRequests bounds the pods that are deleted at a time.
	podGCRequests = 20
)

// podGC deletes pods that no kubelet will: the oldest terminated ones beyond a threshold,
// those of absent nodes, those that are being deleted on nodes out of service, and those that
// are being deleted and have no node.
type podGC struct {
	env   *Env
	pods  corelisters.PodLister
	nodes corelisters.NodeLister
	// absent are the nodes that pods name and that do not exist, and since when.
	absent map[string]time.Time
}

func newPodGC(env *Env) *podGC {
	pods, nodes := env.Informers.Core().V1().Pods(), env.Informers.Core().V1().Nodes()
	env.Use(pods.Informer(), nodes.Informer())
	return &podGC{env: env, pods: pods.Lister(), nodes: nodes.Lister(), absent: map[string]time.Time{}}
}

func runPodGC(ctx context.Context, env *Env) error {
	g := newPodGC(env)
	if err := env.Fill(ctx); err != nil {
		return err
	}
	tick := env.Clock.NewTicker(podGCPeriod)
	defer tick.Stop()
	for {
		if err := g.collect(ctx); err != nil && ctx.Err() == nil {
			env.Log.Warn("a controller failed and repeats", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C():
		}
	}
}

// collect deletes pods once.
func (g *podGC) collect(ctx context.Context) error {
	pods, err := g.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	gone, err := g.goneNodes(ctx, pods)
	var group errgroup.Group
	group.SetLimit(podGCRequests)
	for _, pod := range g.terminated(pods) {
		group.Go(func() error { return g.delete(ctx, pod, nil) })
	}
	for _, pod := range pods {
		switch {
		case gone[pod.Spec.NodeName]:
			group.Go(func() error {
				return g.delete(ctx, pod, &corev1.PodCondition{
					Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation,
					LastTransitionTime: metav1.NewTime(g.env.Clock.Now()), Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
				})
			})
		case pod.DeletionTimestamp != nil && (pod.Spec.NodeName == "" || g.outOfService(pod.Spec.NodeName)):
			group.Go(func() error { return g.delete(ctx, pod, nil) })
		}
	}
	return cmp.Or(err, group.Wait())
}

// terminated returns the terminated pods beyond the threshold: evicted ones first, then the
// oldest.
func (g *podGC) terminated(pods []*corev1.Pod) []*corev1.Pod {
	limit := g.env.Options.TerminatedPodGCThreshold
	if limit <= 0 {
		return nil
	}
	var out []*corev1.Pod
	for _, pod := range pods {
		if p := pod.Status.Phase; p != corev1.PodPending && p != corev1.PodRunning && p != corev1.PodUnknown {
			out = append(out, pod)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		if x, y := evicted(a), evicted(b); x != y {
			return map[bool]int{true: -1, false: 1}[x]
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out[:max(0, len(out)-limit)]
}

func evicted(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed && pod.Status.Reason == "Evicted"
}

// goneNodes returns the nodes that pods name and that have been absent for the quarantine.
func (g *podGC) goneNodes(ctx context.Context, pods []*corev1.Pod) (gone map[string]bool, err error) {
	absent, now := map[string]time.Time{}, g.env.Clock.Now()
	for _, pod := range pods {
		name := pod.Spec.NodeName
		if _, err := g.nodes.Get(name); name != "" && apierrors.IsNotFound(err) {
			absent[name] = now
			if since, ok := g.absent[name]; ok {
				absent[name] = since
			}
		}
	}
	g.absent, gone = absent, map[string]bool{}
	for name, since := range absent {
		if now.Sub(since) < nodeQuarantine {
			continue
		}
		_, getErr := g.env.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{}) // the informer may be late
		if gone[name] = apierrors.IsNotFound(getErr); ignoreNotFound(getErr) != nil {
			err = fmt.Errorf("read node: %w", getErr)
		}
	}
	return gone, err
}

// outOfService reports whether a node is not ready and has the taint of nodes out of service.
func (g *podGC) outOfService(name string) bool {
	node, err := g.nodes.Get(name)
	return err == nil && !nodeReady(node) && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// delete deletes a pod at once. Before, one that may run fails, with a condition if there is
// one, so that its controller counts it as failed.
func (g *podGC) delete(ctx context.Context, pod *corev1.Pod, condition *corev1.PodCondition) error {
	g.env.Log.Info("deleting a pod at once", "pod", Key(pod))
	client := g.env.Client.CoreV1().Pods(pod.Namespace)
	if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
		status := map[string]any{"phase": corev1.PodFailed, "observedGeneration": pod.Generation}
		if condition != nil {
			status["conditions"] = []any{condition}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		if _, err := client.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return ignoreGone(err)
		}
	}
	opts := metav1.NewDeleteOptions(0)
	opts.Preconditions = &metav1.Preconditions{UID: &pod.UID}
	return ignoreGone(client.Delete(ctx, pod.Name, *opts))
}

// ignoreGone returns nil for the errors of an object that is gone or has been replaced.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
