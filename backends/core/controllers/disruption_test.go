package controllers

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"portico/internal/testing/await"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
)

// addBudget creates a budget of the pods of an app in namespace default.
func (s *server) addBudget(name, app string, minAvailable, maxUnavailable *intstr.IntOrString) {
	s.t.Helper()
	must[*policyv1.PodDisruptionBudget](s.t)(s.PolicyV1().PodDisruptionBudgets("default").Create(s.t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: minAvailable, MaxUnavailable: maxUnavailable, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}, metav1.CreateOptions{}))
}

// waitBudget waits for a status of a budget: allowed, healthy, desired, expected, and the
// reason of its condition.
func (s *server) waitBudget(name, want string) *policyv1.PodDisruptionBudget {
	s.t.Helper()
	var pdb *policyv1.PodDisruptionBudget
	got := ""
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the status of %s is %q", name, got)
		}
	}()
	await.Until(s.t, fmt.Sprintf("budget %s is %q", name, want), func() bool {
		pdb = must[*policyv1.PodDisruptionBudget](s.t)(s.PolicyV1().PodDisruptionBudgets("default").Get(s.t.Context(), name, metav1.GetOptions{}))
		reason := "none"
		if c := meta.FindStatusCondition(pdb.Status.Conditions, policyv1.DisruptionAllowedCondition); c != nil {
			reason = c.Reason
		}
		st := pdb.Status
		got = fmt.Sprintf("%d allowed, %d of %d healthy, %d expected: %s", st.DisruptionsAllowed, st.CurrentHealthy, st.DesiredHealthy, st.ExpectedPods, reason)
		return got == want
	})
	return pdb
}

func ownedBy(kind, version, name string, o metav1.Object) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		running("10.0.0.1", corev1.ConditionTrue)(p)
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: o.GetUID(), Controller: new(true)}}
	}
}

// Budgets count pods, or the scale of their controllers for percentages.
func TestDisruptionBudgets(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("disruption-controller", Options{}, nil)
	ctx := t.Context()
	s.addBudget("count", "web", new(intstr.FromInt32(1)), nil)
	s.waitBudget("count", "0 allowed, 0 of 1 healthy, 0 expected: InsufficientPods")
	for i := range 3 {
		s.addPod(fmt.Sprint("web-", i), "n1", "web", running("10.0.0.1", corev1.ConditionTrue))
	}
	pdb := s.waitBudget("count", "2 allowed, 3 of 1 healthy, 3 expected: SufficientPods")
	if pdb.Status.ObservedGeneration != pdb.Generation || len(pdb.Annotations) != 0 {
		t.Errorf("budget %+v", pdb)
	}
	s.setReady("web-0", corev1.ConditionFalse)
	s.waitBudget("count", "1 allowed, 2 of 1 healthy, 3 expected: SufficientPods")
	s.remove("web-1")
	s.waitBudget("count", "0 allowed, 1 of 1 healthy, 2 expected: InsufficientPods")

	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "d"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "d"}}
	d := must[*appsv1.Deployment](t)(s.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(10)), Selector: selector, Template: template},
	}, metav1.CreateOptions{}))
	rs := must[*appsv1.ReplicaSet](t)(s.AppsV1().ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "d-1", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec:       appsv1.ReplicaSetSpec{Replicas: new(int32(7)), Selector: selector, Template: template},
	}, metav1.CreateOptions{}))
	for i := range 9 {
		s.addPod(fmt.Sprint("d-", i), "n1", "d", ownedBy("ReplicaSet", "apps/v1", "d-1", rs))
	}
	s.addBudget("percent", "d", new(intstr.FromString("75%")), nil)
	s.waitBudget("percent", "1 allowed, 9 of 8 healthy, 10 expected: SufficientPods")
	s.addBudget("unavailable", "none", nil, new(intstr.FromInt32(2)))
	s.waitBudget("unavailable", "0 allowed, 0 of 0 healthy, 0 expected: InsufficientPods")
}

// A budget allows nothing if the controller of its pods has no scale, and says why.
func TestDisruptionBudgetWithoutScale(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.run("disruption-controller", Options{}, nil)
	ss := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{UID: "absent"}}
	s.addPod("a", "n1", "web", ownedBy("StatefulSet", "apps/v1", "absent", ss))
	s.addBudget("web", "web", nil, new(intstr.FromInt32(1)))
	pdb := s.waitBudget("web", "0 allowed, 0 of 0 healthy, 0 expected: SyncFailed")
	if got := pdb.Status.Conditions[0].Message; got != `found no controllers for pod "a"` {
		t.Errorf("message %q", got)
	}
}

// lateMapper does not know a kind before it is defined.
type lateMapper struct {
	meta.RESTMapper
	defined atomic.Bool
	asked   atomic.Int32
}

func (m *lateMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if m.asked.Add(1); !m.defined.Load() {
		return nil, &meta.NoKindMatchError{GroupKind: gk, SearchedVersions: versions}
	}
	return m.RESTMapper.RESTMapping(gk, versions...)
}

// A status that cannot be computed is computed again without a change of the budget or its pods: the
// kind of their owner may just have been defined.
func TestDisruptionBudgetOfLateKind(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "d"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	d := must[*appsv1.Deployment](t)(s.AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template},
	}, metav1.CreateOptions{}))
	s.addPod("d-1", "n1", "d", ownedBy("Deployment", "apps/v1", "d", d))
	s.addBudget("d", "d", nil, new(intstr.FromInt32(2)))
	env := s.env("disruption-controller", Options{}, nil)
	mapper := &lateMapper{RESTMapper: env.Mapper}
	env.Mapper = mapper
	s.runIn("disruption-controller", env)
	s.waitBudget("d", "0 allowed, 0 of 0 healthy, 0 expected: SyncFailed")
	// The second computation is because of the status of the first.
	await.Until(t, "the status is computed again", func() bool { return mapper.asked.Load() > 2 })
	mapper.defined.Store(true)
	s.waitBudget("d", "1 allowed, 1 of 0 healthy, 2 expected: SufficientPods")
}

// A pod that an eviction has counted is not healthy for two minutes, and counts again if it
// has not been deleted by then.
func TestDisruptedPods(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	clock := clocktesting.NewFakeClock(time.Now())
	s.run("disruption-controller", Options{}, clock)
	for i := range 2 {
		s.addPod(fmt.Sprint("web-", i), "n1", "web", running("10.0.0.1", corev1.ConditionTrue))
	}
	s.addBudget("web", "web", new(intstr.FromInt32(1)), nil)
	pdb := s.waitBudget("web", "1 allowed, 2 of 1 healthy, 2 expected: SufficientPods")
	pdb.Status.DisruptedPods = map[string]metav1.Time{"web-0": metav1.NewTime(clock.Now()), "gone": metav1.NewTime(clock.Now())}
	pdb.Status.DisruptionsAllowed = 0
	must[*policyv1.PodDisruptionBudget](t)(s.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(t.Context(), pdb, metav1.UpdateOptions{}))
	pdb = s.waitBudget("web", "0 allowed, 1 of 1 healthy, 2 expected: InsufficientPods")
	if len(pdb.Status.DisruptedPods) != 1 {
		t.Errorf("disrupted pods %v", pdb.Status.DisruptedPods)
	}
	await.Until(t, "the controller waits", clock.HasWaiters)
	clock.Step(evictionTimeout + time.Second)
	pdb = s.waitBudget("web", "1 allowed, 2 of 1 healthy, 2 expected: SufficientPods")
	if len(pdb.Status.DisruptedPods) != 0 {
		t.Errorf("disrupted pods %v", pdb.Status.DisruptedPods)
	}
}

// The condition DisruptionTarget of a pod that is still there after two minutes is reset.
func TestStaleDisruptionTarget(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	target := func(at time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			running("10.0.0.1", corev1.ConditionTrue)(p)
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "PreemptionByScheduler", Message: "m", LastTransitionTime: metav1.NewTime(at),
			})
		}
	}
	s.addPod("old", "n1", "x", target(time.Now().Add(-disruptionTimeout)))
	s.addPod("new", "n1", "x", target(time.Now()))
	s.run("disruption-controller", Options{}, nil)
	condition := func(name string) *corev1.PodCondition {
		return podCondition(must[*corev1.Pod](t)(s.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})), corev1.DisruptionTarget)
	}
	await.Until(t, "the old condition is reset", func() bool {
		c := condition("old")
		return c.Status == corev1.ConditionFalse && c.Reason == "" && c.Message == ""
	})
	if condition("new").Status != corev1.ConditionTrue {
		t.Error("the new condition is reset")
	}
}
