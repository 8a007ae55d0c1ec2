package controllers

import (
	"slices"
	"strings"
	"testing"
	"time"

	"portico/internal/testing/await"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// podNames returns the names of the pods that are not being deleted.
func (s *server) podNames() string {
	s.t.Helper()
	var names []string
	for _, p := range must[*corev1.PodList](s.t)(s.CoreV1().Pods("default").List(s.t.Context(), metav1.ListOptions{})).Items {
		if p.DeletionTimestamp == nil {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// held makes a pod stay when it is deleted.
func held(p *corev1.Pod) { p.Finalizers = []string{"example.com/held"} }

// The terminated pods beyond the threshold are deleted: evicted ones first, then by age.
func TestPodGCOfTerminatedPods(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.addNode("n1", "")
	phase := func(phase corev1.PodPhase, reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = phase, reason }
	}
	s.addPod("a-done", "n1", "x", phase(corev1.PodSucceeded, ""))
	s.addPod("b-failed", "n1", "x", phase(corev1.PodFailed, ""))
	s.addPod("c-done", "n1", "x", phase(corev1.PodSucceeded, ""))
	s.addPod("d-evicted", "n1", "x", phase(corev1.PodFailed, "Evicted"))
	s.addPod("e-runs", "n1", "x", phase(corev1.PodRunning, ""))
	s.run("pod-garbage-collector-controller", Options{TerminatedPodGCThreshold: 2}, nil)
	await.Until(t, "two are left", func() bool {
		names := s.podNames()
		// Pods of the same second are in the order of their names.
		return names == "b-failed c-done e-runs"
	})
}

// Pods of a node that has been absent for the quarantine fail and are deleted.
func TestPodGCOfAbsentNodes(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	clock := clocktesting.NewFakeClock(time.Now())
	s.addNode("n1", "")
	for _, node := range []string{"n1", "absent", "late"} {
		s.addPod("on-"+node, node, "x", func(p *corev1.Pod) {
			running("10.0.0.1", corev1.ConditionTrue)(p)
			held(p)
		})
	}
	env := s.env("pod-garbage-collector-controller", Options{}, clock)
	g := newPodGC(env)
	if err := env.Fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	// collectAfter moves the clock and lets the controller look once.
	collectAfter := func(d time.Duration) {
		t.Helper()
		clock.Step(d)
		if err := g.collect(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	collectAfter(0)
	collectAfter(nodeQuarantine - time.Second)
	if got := s.podNames(); got != "on-absent on-late on-n1" {
		t.Errorf("within the quarantine, pods are %s", got)
	}
	s.addNode("late", "")
	await.Until(t, "the informer has the node", func() bool {
		_, err := g.nodes.Get("late")
		return err == nil
	})
	collectAfter(time.Second)
	if got := s.podNames(); got != "on-late on-n1" {
		t.Errorf("after the quarantine, pods are %s", got)
	}
	pod := must[*corev1.Pod](t)(s.CoreV1().Pods("default").Get(t.Context(), "on-absent", metav1.GetOptions{}))
	target := podCondition(pod, corev1.DisruptionTarget)
	if pod.Status.Phase != corev1.PodFailed || target == nil || target.Status != corev1.ConditionTrue || target.Reason != "DeletionByPodGC" ||
		target.Message != "PodGC: node no longer exists" || podCondition(pod, corev1.PodReady) == nil {
		t.Errorf("status %+v", pod.Status)
	}
}

// Pods that are being deleted go at once if no kubelet is there to end them.
func TestPodGCOfTerminatingPods(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx, pods := t.Context(), s.CoreV1().Pods("default")
	s.addNode("ready", "")
	s.addNode("out", "")
	node := must[*corev1.Node](t)(s.CoreV1().Nodes().Get(ctx, "out", metav1.GetOptions{}))
	node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService, Value: "x", Effect: corev1.TaintEffectNoExecute}}
	must[*corev1.Node](t)(s.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}))
	for name, node := range map[string]string{"unscheduled": "", "on-ready": "ready", "on-out": "out"} {
		s.addPod(name, node, "x", held)
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s.addPod("waits", "", "x", nil)
	s.run("pod-garbage-collector-controller", Options{}, nil)
	failed := func(name string) bool {
		pod := must[*corev1.Pod](t)(pods.Get(ctx, name, metav1.GetOptions{}))
		return pod.Status.Phase == corev1.PodFailed && *pod.DeletionGracePeriodSeconds == 0
	}
	await.Until(t, "both are deleted at once", func() bool { return failed("unscheduled") && failed("on-out") })
	if failed("on-ready") || s.podNames() != "waits" {
		t.Error("another pod is deleted")
	}
}
