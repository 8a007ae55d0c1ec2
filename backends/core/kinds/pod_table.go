package kinds

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func podTableColumns() []metav1.TableColumnDefinition {
	return []metav1.TableColumnDefinition{
		nameColumn(),
		column("Ready", "string", "How many containers are ready, of how many."),
		column("Status", "string", "The phase of the pod, or why a container does not run."),
		column("Restarts", "string", "How often containers were restarted, and when the last one was."),
		ageColumn(),
		wide("IP", "string", "The first address of the pod."),
		wide("Node", "string", "The node that the pod is scheduled to."),
		wide("Nominated Node", "string", "The node on which the pod displaces others."),
		wide("Readiness Gates", "string", "How many readiness gates are passed, of how many."),
	}
}

// podSummary is what a table says of the containers of a pod.
type podSummary struct {
	ready, total, restarts int
	last                   metav1.Time
	reason                 string
}

func (s *podSummary) count(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if t := c.LastTerminationState.Terminated; t != nil && s.last.Before(&t.FinishedAt) {
		s.last = t.FinishedAt
	}
}

// termination returns why a container ended.
func termination(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func hasPodCondition(p *corev1.Pod, kind corev1.PodConditionType, is func(*corev1.PodCondition) bool) bool {
	i := slices.IndexFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	return i >= 0 && is(&p.Status.Conditions[i])
}

func isTrue(c *corev1.PodCondition) bool { return c.Status == corev1.ConditionTrue }

// summarize counts containers. Those of the init phase matter until it is over.
func summarize(p *corev1.Pod) *podSummary {
	s := &podSummary{total: len(p.Spec.Containers), reason: cmp.Or(p.Status.Reason, string(p.Status.Phase))}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = c.Reason
		}
	}
	sidecar := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if sidecar[c.Name] = ptr.Deref(c.RestartPolicy, "") == corev1.ContainerRestartPolicyAlways; sidecar[c.Name] {
			s.total++
		}
	}
	var sidecars podSummary
	initializing := false
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.count(c)
		if sidecar[c.Name] {
			sidecars.count(c)
		}
		t, w := c.State.Terminated, c.State.Waiting
		if t != nil && t.ExitCode == 0 {
			continue
		}
		if sidecar[c.Name] && ptr.Deref(c.Started, false) {
			if c.Ready {
				s.ready++
			}
			continue
		}
		initializing = true
		switch {
		case t != nil:
			s.reason = "Init:" + termination(t)
		case w != nil && w.Reason != "" && w.Reason != "PodInitializing":
			s.reason = "Init:" + w.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		break
	}
	if !initializing || hasPodCondition(p, corev1.PodInitialized, isTrue) {
		s.restarts, s.last = sidecars.restarts, sidecars.last
		s.mainContainers(p)
	}
	return s
}

// mainContainers counts the containers of the main phase.
func (s *podSummary) mainContainers(p *corev1.Pod) {
	running, failure := false, ""
	for i := range slices.Backward(p.Status.ContainerStatuses) {
		c := &p.Status.ContainerStatuses[i]
		s.count(c)
		switch t, w := c.State.Terminated, c.State.Waiting; {
		case w != nil && w.Reason != "":
			s.reason = w.Reason
		case t != nil:
			s.reason = termination(t)
			if t.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	ready := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && isTrue(&c) })
	switch {
	case running && ready:
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func podCells(p *corev1.Pod) []any {
	s := summarize(p)
	ended := p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
	if p.DeletionTimestamp != nil && p.Status.Reason == "NodeLost" {
		s.reason = "Unknown"
	} else if p.DeletionTimestamp != nil && !ended {
		s.reason = "Terminating"
	}
	restarts := strconv.Itoa(s.restarts)
	if s.restarts != 0 && !s.last.IsZero() {
		restarts = fmt.Sprintf("%d (%s ago)", s.restarts, age(s.last))
	}
	ip, gates := "", none
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	if n := len(p.Spec.ReadinessGates); n > 0 {
		passed := 0
		for _, g := range p.Spec.ReadinessGates {
			if hasPodCondition(p, g.ConditionType, isTrue) {
				passed++
			}
		}
		gates = fmt.Sprintf("%d/%d", passed, n)
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", s.ready, s.total), s.reason, restarts, age(p.CreationTimestamp),
		cmp.Or(ip, none), cmp.Or(p.Spec.NodeName, none), cmp.Or(p.Status.NominatedNodeName, none), gates,
	}
}
