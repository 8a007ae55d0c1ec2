package core

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const podsPath = "/api/v1/namespaces/default/pods"

// createPod creates a pod with a label app of the value of its name. A node, phase and
// readiness are set if they are not empty.
func (c *Core) createPod(t *testing.T, name, node string, phase corev1.PodPhase, ready corev1.ConditionStatus, finalizers ...string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Finalizers: finalizers},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	c.must(t, http.MethodPost, podsPath, p, p)
	if phase != "" {
		p.Status.Phase = phase
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		c.must(t, http.MethodPut, podsPath+"/"+name+"/status", p, p)
	}
	return p
}

func TestBinding(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	pod := c.createPod(t, "p", "", "", "")
	binding := func(change func(b *corev1.Binding)) *corev1.Binding {
		b := &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{"a": "b"}, Labels: map[string]string{"zone": "z"}},
			Target:     corev1.ObjectReference{Kind: "Node", Name: "n"},
		}
		change(b)
		return b
	}
	for name, r := range map[string]struct {
		path   string
		change func(b *corev1.Binding)
		is     func(error) bool
		text   string
	}{
		"no target":       {"", func(b *corev1.Binding) { b.Target = corev1.ObjectReference{} }, apierrors.IsInvalid, `Binding "p" is invalid: target.name: Required value`},
		"no node":         {"", func(b *corev1.Binding) { b.Target.Kind = "Pod" }, apierrors.IsInvalid, `target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"`},
		"no name":         {"", func(b *corev1.Binding) { b.Target.Name = "N" }, apierrors.IsInvalid, "target.name: Invalid value"},
		"label":           {"", func(b *corev1.Binding) { b.Labels["-"] = "" }, apierrors.IsInvalid, "metadata.labels: Invalid value"},
		"other name":      {"", func(b *corev1.Binding) { b.Name = "q" }, apierrors.IsBadRequest, "name in URL does not match name in Binding object"},
		"other namespace": {"", func(b *corev1.Binding) { b.Namespace = "q" }, apierrors.IsBadRequest, "does not match the namespace sent"},
		"uid":             {"", func(b *corev1.Binding) { b.UID = "u" }, apierrors.IsConflict, `Operation cannot be fulfilled on pods "p": Precondition failed: UID in precondition: u`},
		"revision":        {"", func(b *corev1.Binding) { b.ResourceVersion = "1" }, apierrors.IsConflict, "Precondition failed: ResourceVersion"},
		"no pod":          {podsPath + "/q/binding", func(b *corev1.Binding) { b.Name = "q" }, apierrors.IsNotFound, `pods "q" not found`},
		"legacy, no pod":  {"/api/v1/namespaces/default/bindings", func(b *corev1.Binding) { b.Name = "q" }, apierrors.IsNotFound, `pods "q" not found`},
	} {
		path := r.path
		if path == "" {
			path = podsPath + "/p/binding"
		}
		if err := c.do(t, http.MethodPost, path, binding(r.change), nil); !r.is(err) || !strings.Contains(err.Error(), r.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	bound := binding(func(b *corev1.Binding) { b.UID = pod.UID })
	status := &metav1.Status{}
	c.must(t, http.MethodPost, podsPath+"/p/binding?dryRun=All", bound, status)
	if p := get[corev1.Pod](t, c, podsPath+"/p"); p.Spec.NodeName != "" {
		t.Fatal("a dry run bound the pod")
	}
	c.must(t, http.MethodPost, podsPath+"/p/binding", bound, status)
	if status.Status != metav1.StatusSuccess || status.Code != http.StatusCreated || status.Kind != "Status" {
		t.Errorf("%+v", status)
	}
	p := get[corev1.Pod](t, c, podsPath+"/p")
	if p.Spec.NodeName != "n" || p.Annotations["a"] != "b" || p.Labels["zone"] != "z" || p.Labels["app"] != "p" || p.Generation != 1 {
		t.Errorf("%+v", p)
	}
	if cs := p.Status.Conditions; len(cs) != 1 || cs[0].Type != corev1.PodScheduled || cs[0].Status != corev1.ConditionTrue {
		t.Errorf("%+v", cs)
	}
	err := c.do(t, http.MethodPost, "/api/v1/namespaces/default/bindings", bound, nil)
	if want := `Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"`; !apierrors.IsConflict(err) || err.Error() != want {
		t.Error(err)
	}
	c.createPod(t, "held", "", "", "", "a/b")
	c.must(t, http.MethodDelete, podsPath+"/held", nil, nil)
	err = c.do(t, http.MethodPost, podsPath+"/held/binding", binding(func(b *corev1.Binding) { b.Name = "held" }), nil)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "pod held is being deleted, cannot be assigned to a host") {
		t.Error(err)
	}
	c.createPod(t, "old", "", "", "")
	c.must(t, http.MethodPost, "/api/v1/namespaces/default/bindings", binding(func(b *corev1.Binding) { b.Name = "old" }), nil)
	if p := get[corev1.Pod](t, c, podsPath+"/old"); p.Spec.NodeName != "n" {
		t.Error("not bound")
	}
	if err := c.do(t, http.MethodGet, "/api/v1/namespaces/default/bindings", nil, nil); !apierrors.IsMethodNotSupported(err) {
		t.Error(err)
	}
}

// budget creates a budget that selects pods with the label, with a status.
func (c *Core) budget(t *testing.T, name, app string, policy policyv1.UnhealthyPodEvictionPolicyType, s policyv1.PodDisruptionBudgetStatus) {
	t.Helper()
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}
	if policy != "" {
		b.Spec.UnhealthyPodEvictionPolicy = &policy
	}
	const path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	c.must(t, http.MethodPost, path, b, b)
	b.Status = s
	c.must(t, http.MethodPut, path+"/"+name+"/status", b, nil)
}

func evictionOf(name string, opts *metav1.DeleteOptions) map[string]any {
	return map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": name}, "deleteOptions": opts}
}

// The outcome of an eviction depends on the pod and its budget.
func TestEvictionAsksTheBudget(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	const healthy, sick = corev1.ConditionTrue, corev1.ConditionFalse
	seen := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1}
	with := func(change func(s *policyv1.PodDisruptionBudgetStatus)) *policyv1.PodDisruptionBudgetStatus {
		s := seen
		change(&s)
		return &s
	}
	many := map[string]metav1.Time{}
	for i := range 2001 {
		many[fmt.Sprint(i)] = metav1.Now()
	}
	for name, r := range map[string]struct {
		phase  corev1.PodPhase
		ready  corev1.ConditionStatus
		policy policyv1.UnhealthyPodEvictionPolicyType
		status *policyv1.PodDisruptionBudgetStatus // nil: there is no budget
		reason metav1.StatusReason                 // "": it is evicted
		cause  string
		left   int32
	}{
		"no budget": {phase: corev1.PodRunning, ready: healthy},
		"pending":   {phase: corev1.PodPending, status: &seen},
		"succeeded": {phase: corev1.PodSucceeded, status: &seen},
		"failed":    {phase: corev1.PodFailed, status: &seen},
		"allowed":   {phase: corev1.PodRunning, ready: healthy, status: with(func(s *policyv1.PodDisruptionBudgetStatus) { s.DisruptionsAllowed = 2 }), left: 1},
		"used": {phase: corev1.PodRunning, ready: healthy, status: with(func(s *policyv1.PodDisruptionBudgetStatus) { s.DesiredHealthy, s.CurrentHealthy = 2, 1 }),
			reason: metav1.StatusReasonTooManyRequests, cause: "The disruption budget b needs 2 healthy pods and has 1 currently"},
		"not seen": {phase: corev1.PodRunning, ready: healthy, status: with(func(s *policyv1.PodDisruptionBudgetStatus) { s.ObservedGeneration = 0 }),
			reason: metav1.StatusReasonTooManyRequests, cause: "The disruption budget b is still being processed by the server."},
		"not synced": {phase: corev1.PodRunning, ready: healthy, status: with(func(s *policyv1.PodDisruptionBudgetStatus) {
			s.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason, Message: "m", LastTransitionTime: metav1.Now()}}
		}), reason: metav1.StatusReasonTooManyRequests, cause: "The disruption budget b does not allow evicting pods currently because it failed sync: m"},
		"spare": {phase: corev1.PodRunning, ready: healthy, status: with(func(s *policyv1.PodDisruptionBudgetStatus) { s.DesiredHealthy, s.CurrentHealthy = 1, 2 }),
			reason: metav1.StatusReasonTooManyRequests, cause: "The disruption budget b does not allow evicting pods currently"},
		"too many": {phase: corev1.PodRunning, ready: healthy, status: with(func(s *policyv1.PodDisruptionBudgetStatus) { s.DisruptedPods = many }),
			reason: metav1.StatusReasonForbidden, cause: "too many pending evictions not confirmed by PDB controller"},
		"unhealthy, guarded": {phase: corev1.PodRunning, ready: sick, status: with(func(s *policyv1.PodDisruptionBudgetStatus) { s.DesiredHealthy = 1 }),
			reason: metav1.StatusReasonTooManyRequests, cause: "needs 1 healthy pods and has 0 currently"},
		"unhealthy, healthy budget": {phase: corev1.PodRunning, ready: sick, status: with(func(s *policyv1.PodDisruptionBudgetStatus) { s.DesiredHealthy, s.CurrentHealthy = 1, 1 })},
		"unhealthy, always":         {phase: corev1.PodRunning, ready: sick, policy: policyv1.AlwaysAllow, status: &seen},
	} {
		t.Run(name, func(t *testing.T) {
			c.createPod(t, "p", "n", r.phase, r.ready, "a/b")
			const budget = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b"
			if r.status != nil {
				c.budget(t, "b", "p", r.policy, *r.status)
				defer c.must(t, http.MethodDelete, budget, nil, nil)
			}
			defer func() {
				c.must(t, http.MethodPatch, podsPath+"/p", map[string]any{"metadata": map[string]any{"finalizers": nil}}, nil)
				_ = c.do(t, http.MethodDelete, podsPath+"/p?gracePeriodSeconds=0", nil, nil)
			}()
			for _, query := range []string{"?dryRun=All", ""} {
				err := c.do(t, http.MethodPost, podsPath+"/p/eviction"+query, evictionOf("p", nil), nil)
				if apierrors.ReasonForError(err) != r.reason && (err != nil || r.reason != "") {
					t.Fatalf("%s: %v", query, err)
				}
				if err != nil {
					causes := err.(apierrors.APIStatus).Status().Details.Causes
					if len(causes) != 1 || causes[0].Type != policyv1.DisruptionBudgetCause || !strings.Contains(causes[0].Message, r.cause) {
						t.Errorf("%+v", causes)
					}
				}
				p := get[corev1.Pod](t, c, podsPath+"/p")
				if begun := p.DeletionTimestamp != nil; begun != (r.reason == "" && query == "") {
					t.Fatalf("%s: deletion begun %v", query, begun)
				}
				if query == "" && r.reason == "" {
					if cs := p.Status.Conditions; cs[len(cs)-1].Type != corev1.DisruptionTarget || cs[len(cs)-1].Reason != "EvictionByEvictionAPI" {
						t.Errorf("%+v", cs)
					}
				}
				if r.left > 0 {
					b := get[policyv1.PodDisruptionBudget](t, c, budget)
					_, named := b.Status.DisruptedPods["p"]
					if spent := query == ""; named != spent || (b.Status.DisruptionsAllowed == r.left) != spent {
						t.Errorf("%s: %+v", query, b.Status)
					}
				}
			}
		})
	}
}

func TestEvictionErrors(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	pod := c.createPod(t, "p", "n", corev1.PodRunning, corev1.ConditionTrue)
	uid, old := types.UID("u"), "1"
	for name, r := range map[string]struct {
		body map[string]any
		path string
		is   func(error) bool
		text string
	}{
		"no pod":         {evictionOf("q", nil), podsPath + "/q/eviction", apierrors.IsNotFound, `pods "q" not found`},
		"other name":     {evictionOf("q", nil), podsPath + "/p/eviction", apierrors.IsBadRequest, "name in URL does not match name in Eviction object"},
		"uid":            {evictionOf("p", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}), podsPath + "/p/eviction", apierrors.IsConflict, "the UID in the precondition (u) does not match"},
		"revision":       {evictionOf("p", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &old}}), podsPath + "/p/eviction", apierrors.IsConflict, "the ResourceVersion in the precondition (1) does not match"},
		"unread":         {evictionOf("p", &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}), podsPath + "/p/eviction", apierrors.IsInvalid, "can not be set for pod eviction"},
		"no propagation": {evictionOf("p", &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletionPropagation("x"))}), podsPath + "/p/eviction", apierrors.IsInvalid, "propagationPolicy"},
	} {
		if err := c.do(t, http.MethodPost, r.path, r.body, nil); !r.is(err) || !strings.Contains(err.Error(), r.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	seen := policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: 5}
	c.budget(t, "b1", "p", "", seen)
	c.budget(t, "b2", "p", "", seen)
	err := c.do(t, http.MethodPost, podsPath+"/p/eviction", evictionOf("p", nil), nil)
	if status, ok := err.(apierrors.APIStatus); !ok || status.Status().Code != 500 || !strings.Contains(err.Error(), "more than one PodDisruptionBudget") {
		t.Error(err)
	}
	c.must(t, http.MethodDelete, "/apis/policy/v1/namespaces/default/poddisruptionbudgets/b2", nil, nil)
	// The version of old clients, with a grace period and the uid of the pod.
	body := evictionOf("p", &metav1.DeleteOptions{GracePeriodSeconds: new(int64(7)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	body["apiVersion"] = "policy/v1beta1"
	c.must(t, http.MethodPost, podsPath+"/p/eviction", body, nil)
	if p := get[corev1.Pod](t, c, podsPath+"/p"); p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != 7 {
		t.Errorf("%+v", p.ObjectMeta)
	}
}

// A pod is deleted at once if no node runs it, and otherwise when its node says so, or at the
// end of a period that can only be shortened.
func TestDeletionOfPods(t *testing.T) {
	t.Parallel()
	c := running(t, Config{})
	for name, r := range map[string]struct {
		node  string
		phase corev1.PodPhase
		query string
		want  int64 // seconds; negative: the pod is gone
	}{
		"not scheduled":              {"", "", "", -1},
		"not scheduled, with period": {"", "", "?gracePeriodSeconds=50", -1},
		"scheduled":                  {"n", "", "", 30},
		"running":                    {"n", corev1.PodRunning, "?gracePeriodSeconds=50", 50},
		"negative":                   {"n", corev1.PodRunning, "?gracePeriodSeconds=-1", 1},
		"by force":                   {"n", corev1.PodRunning, "?gracePeriodSeconds=0", -1},
		"failed":                     {"n", corev1.PodFailed, "?gracePeriodSeconds=50", -1},
		"succeeded":                  {"n", corev1.PodSucceeded, "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			c.createPod(t, "p", r.node, r.phase, corev1.ConditionTrue)
			begun := time.Now().Truncate(time.Second)
			got := &corev1.Pod{}
			c.must(t, http.MethodDelete, podsPath+"/p"+r.query, nil, got)
			if got.Kind != "Pod" || got.Name != "p" {
				t.Errorf("the response is %+v", got)
			}
			err := c.do(t, http.MethodGet, podsPath+"/p", nil, nil)
			if r.want < 0 {
				if !apierrors.IsNotFound(err) {
					t.Error(err)
				}
				return
			}
			if got.DeletionGracePeriodSeconds == nil || *got.DeletionGracePeriodSeconds != r.want || got.Generation != 2 {
				t.Fatalf("%+v", got.ObjectMeta)
			}
			if ends := got.DeletionTimestamp.Sub(begun); ends < time.Duration(r.want)*time.Second || ends > time.Duration(r.want+20)*time.Second {
				t.Errorf("ends %v after it began", ends)
			}
			// A node that has ended the pod says so.
			c.must(t, http.MethodDelete, podsPath+"/p?gracePeriodSeconds=0", nil, nil)
			if err := c.do(t, http.MethodGet, podsPath+"/p", nil, nil); !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		})
	}
	for i := range 4 {
		node := ""
		if i%2 == 0 {
			node = "n"
		}
		c.createPod(t, fmt.Sprintf("p%d", i), node, "", "")
	}
	c.must(t, http.MethodDelete, podsPath, nil, nil)
	left := get[corev1.PodList](t, c, podsPath)
	if len(left.Items) != 2 || left.Items[0].DeletionTimestamp == nil || left.Items[1].Name != "p2" {
		t.Errorf("%d pods are left", len(left.Items))
	}
}
