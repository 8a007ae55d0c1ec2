package plugins

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func class(name string, value int32, isDefault bool, policy ...corev1.PreemptionPolicy) *schedulingv1.PriorityClass {
	c := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, GlobalDefault: isDefault, PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}
	if len(policy) > 0 {
		c.PreemptionPolicy = &policy[0]
	}
	return c
}

// A pod gets the priority of its class, or of the lowest default class.
func TestPriority(t *testing.T) {
	t.Parallel()
	none, one, two := newWorld(t, class("high", 1000, false), class("gentle", 7, false, corev1.PreemptNever)), newWorld(t, class("d", 500, true)), newWorld(t, class("d", 500, true), class("e", 200, true, corev1.PreemptNever))
	spec := func(class string, priority *int32, policy *corev1.PreemptionPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.PriorityClassName, p.Spec.Priority, p.Spec.PreemptionPolicy = class, priority, policy
		}
	}
	for _, tc := range []struct {
		name     string
		world    *world
		pod      *corev1.Pod
		class    string
		priority int32
		policy   corev1.PreemptionPolicy
		err      string
	}{
		{"no class", none, aPod(), "", 0, corev1.PreemptLowerPriority, ""},
		{"class", none, aPod(spec("high", nil, nil)), "high", 1000, corev1.PreemptLowerPriority, ""},
		{"never", none, aPod(spec("gentle", nil, nil)), "gentle", 7, corev1.PreemptNever, ""},
		{"default", one, aPod(), "d", 500, corev1.PreemptLowerPriority, ""},
		{"two defaults", two, aPod(), "e", 200, corev1.PreemptNever, ""},
		{"same value", none, aPod(spec("high", ptr.To[int32](1000), nil)), "high", 1000, corev1.PreemptLowerPriority, ""},
		{"absent", none, aPod(spec("gone", nil, nil)), "", 0, "", `pods "p" is forbidden: no PriorityClass with name gone was found`},
		{"another value", none, aPod(spec("high", ptr.To[int32](5), nil)), "", 0, "", "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name"},
		{"a value", none, aPod(spec("", ptr.To[int32](5), nil)), "", 0, "", "the integer value of priority (5) must not be provided"},
		{"another policy", none, aPod(spec("high", nil, ptr.To(corev1.PreemptNever))), "", 0, "", "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from"},
	} {
		err := admit(t, tc.world.only("Priority"), tc.world.write(tc.pod, nil))
		expect(t, tc.name, err, tc.err)
		if s := &tc.pod.Spec; tc.err == "" && err == nil && (s.PriorityClassName != tc.class || *s.Priority != tc.priority || *s.PreemptionPolicy != tc.policy) {
			t.Errorf("%s: got %s %d %s", tc.name, s.PriorityClassName, *s.Priority, *s.PreemptionPolicy)
		}
	}
	old := aPod(spec("high", ptr.To[int32](1000), ptr.To(corev1.PreemptNever)))
	pod := aPod()
	if err := admit(t, none.only("Priority"), none.write(pod, old)); err != nil || *pod.Spec.Priority != 1000 || *pod.Spec.PreemptionPolicy != corev1.PreemptNever {
		t.Errorf("update: %v %v", pod.Spec, err)
	}
}

// There is one default class.
func TestPriorityDefaultClass(t *testing.T) {
	t.Parallel()
	none, one := newWorld(t), newWorld(t, class("d", 500, true))
	for _, tc := range []struct {
		name     string
		world    *world
		obj, old *schedulingv1.PriorityClass
		err      string
	}{
		{"first", none, class("e", 1, true), nil, ""},
		{"second", one, class("e", 1, true), nil, "PriorityClass d is already marked as default. Only one default can exist"},
		{"not one", one, class("e", 1, false), nil, ""},
		{"update of it", one, class("d", 500, true), class("d", 500, true), ""},
		{"update of another", one, class("e", 1, true), class("e", 1, false), "PriorityClass d is already"},
	} {
		a := tc.world.write(tc.obj, nil)
		if tc.old != nil {
			a = tc.world.write(tc.obj, tc.old)
		}
		expect(t, tc.name, admit(t, tc.world.only("Priority"), a), tc.err)
	}
}
